#include "model/adapter_packer.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/sip_hash.h"

namespace bl {
namespace {

std::int64_t padded_rank(std::int64_t rank) {
  return (rank + kLoraRankStep - 1) / kLoraRankStep * kLoraRankStep;
}

HostArray zeros(DType dtype, const Shape& shape) {
  auto tensor = std::make_shared<Tensor>(make_host_tensor(dtype, shape));
  std::memset(tensor->view().data, 0, static_cast<std::size_t>(shape.elements()) * size_of(dtype));
  const TensorView view = tensor->view();
  return {view, std::move(tensor)};
}

std::size_t bytes_of(const TensorView& view) {
  return static_cast<std::size_t>(view.shape.elements()) * size_of(view.dtype);
}

DenseMatrix matrix_of(const std::string& name, HostArray weight) {
  DenseMatrix matrix;
  matrix.name = name;
  matrix.weight = std::move(weight);
  return matrix;
}

// Returns A [rank of the file, in] padded with rows of zeros to `rank`. `inputs` lists its columns
// in the order of the linear's inputs; empty keeps their order.
HostArray padded_rows(const TensorView& a, std::int64_t rank,
                      const std::vector<std::int32_t>& inputs = {}) {
  HostArray copy = zeros(a.dtype, {rank, a.columns()});
  if (inputs.empty()) {
    std::memcpy(copy.view.data, a.data, bytes_of(a));
    return copy;
  }
  visit_float_dtype(a.dtype, [&]<class T>(Tag<T>) {
    for (std::int64_t r = 0; r < a.rows(); ++r) {
      const T* from = a.row<const T>(r);
      T* to = copy.view.row<T>(r);
      for (const std::int32_t input : inputs) *to++ = from[input];
    }
  });
  return copy;
}

// Returns A [rank of the file, rows] transposed to a table [rows, rank], padded with zeros.
HostArray table_rows(const TensorView& a, std::int64_t rank) {
  HostArray table = zeros(a.dtype, {a.columns(), rank});
  visit_float_dtype(a.dtype, [&]<class T>(Tag<T>) {
    for (std::int64_t r = 0; r < a.rows(); ++r) {
      const T* from = a.row<const T>(r);
      for (std::int64_t i = 0; i < a.columns(); ++i) table.view.row<T>(i)[r] = from[i];
    }
  });
  return table;
}

// Returns the rows of B [out, rank of the file] that a part of a site needs, each padded with zeros
// to `rank`.
HostArray part_rows(const TensorView& b, const AdapterPart& part, std::int64_t rank) {
  HostArray copy = zeros(b.dtype, {part.count, rank});
  const std::size_t width = static_cast<std::size_t>(b.columns()) * size_of(b.dtype);
  const std::size_t stride = static_cast<std::size_t>(rank) * size_of(b.dtype);
  for (std::int64_t i = 0; i < part.count; ++i) {
    const std::int64_t row =
        part.rows.empty() ? part.first_row + i : part.rows[static_cast<std::size_t>(i)];
    std::memcpy(copy.view.as<std::byte>() + static_cast<std::size_t>(i) * stride,
                b.as<const std::byte>() + static_cast<std::size_t>(row) * width, width);
  }
  return copy;
}

void add_bytes(const TensorView& view, SipHash& print) {
  const std::size_t bytes = bytes_of(view);
  print.update(static_cast<std::uint64_t>(view.dtype));  // equal bytes may be other numbers
  print.update(std::uint64_t{bytes});
  print.update(std::span(view.as<const std::byte>(), bytes));
}

std::size_t packed_bytes(Backend& backend, const DenseMatrix& matrix) {
  const std::size_t packed = backend.packed_bytes(matrix, {});
  return packed > 0 ? packed : bytes_of(matrix.weight.view);  // 0: the backend reads it where it is
}

}  // namespace

PreparedAdapter::Module PreparedAdapter::whole_module(const LoraModule& from) {
  const TensorView& weight = from.whole.view;
  Module module;
  module.scale = static_cast<float>(from.scale);
  module.is_embedding = from.site->is_embedding;
  module.is_whole = true;
  if (module.is_embedding) {
    module.down = matrix_of(from.tensor, padded_rows(weight, weight.rows()));
    return module;
  }
  for (const AdapterPart& part : from.site->parts) {
    module.parts.push_back({part.linear, part.first_column,
                            matrix_of(from.tensor, part_rows(weight, part, weight.columns()))});
  }
  return module;
}

PreparedAdapter::PreparedAdapter(const PeftAdapter& adapter) {
  for (const LoraModule& from : adapter.modules) {
    if (from.is_whole()) {
      modules_.push_back(whole_module(from));
      continue;
    }
    const std::int64_t rank = padded_rank(from.rank());
    const AdapterSite& site = *from.site;
    Module module;
    module.scale = static_cast<float>(from.scale);
    module.is_embedding = site.is_embedding;
    module.down =
        matrix_of(from.tensor, site.is_embedding ? table_rows(from.a.view, rank)
                                                 : padded_rows(from.a.view, rank, site.inputs));
    if (site.is_embedding) {
      const AdapterPart all{.count = site.out};
      module.parts.push_back({-1, 0, matrix_of(from.tensor, part_rows(from.b.view, all, rank))});
    }
    for (const AdapterPart& part : site.parts) {
      module.parts.push_back({part.linear, part.first_column,
                              matrix_of(from.tensor, part_rows(from.b.view, part, rank))});
    }
    modules_.push_back(std::move(module));
  }
  SipHash print;
  for (const Module& module : modules_) {
    print.update(std::uint64_t{std::bit_cast<std::uint32_t>(module.scale)});
    print.update(std::uint64_t{module.is_embedding});
    print.update(std::uint64_t{module.is_whole});
    print.update(std::uint64_t{module.parts.size()});
    if (module.has_down()) add_bytes(module.down.weight.view, print);
    for (const Part& part : module.parts) {
      print.update(static_cast<std::uint64_t>(part.linear));
      print.update(static_cast<std::uint64_t>(part.first_column));
      add_bytes(part.up.weight.view, print);
    }
  }
  fingerprint_ = print.finish().hex();
}

std::size_t PreparedAdapter::bytes(Backend& backend) const {
  std::size_t total = 0;
  for (const Module& module : modules_) {
    if (module.has_down()) {
      total += module.is_embedding ? bytes_of(module.down.weight.view)
                                   : packed_bytes(backend, module.down);
    }
    for (const Part& part : module.parts) total += packed_bytes(backend, part.up);
  }
  return total;
}

std::shared_ptr<const LoraAdapter> PreparedAdapter::pack(Backend& backend) const {
  auto adapter = std::make_shared<LoraAdapter>();
  for (const Module& module : modules_) {
    if (module.is_embedding) {
      const TensorView& rows = module.down.weight.view;
      LoraEmbedding embedding;
      embedding.rows = Tensor(backend.allocate(bytes_of(rows)), rows.dtype, rows.shape);
      backend.upload(embedding.rows.view(), rows);
      if (module.is_whole) {
        adapter->set_table(std::move(embedding.rows));
        continue;
      }
      embedding.up = backend.pack(module.parts.front().up, {});
      embedding.scale = module.scale;
      adapter->set_embedding(std::move(embedding));
      continue;
    }
    if (module.is_whole) {
      for (const Part& part : module.parts)
        adapter->replace(part.linear, backend.pack(part.up, {}));
      continue;
    }
    const std::shared_ptr<const PackedMatrix> down = backend.pack(module.down, {});
    for (const Part& part : module.parts) {
      adapter->add(part.linear, {down, backend.pack(part.up, {}), part.first_column, module.scale});
    }
  }
  backend.finish_weights();
  return adapter;
}

}  // namespace bl
