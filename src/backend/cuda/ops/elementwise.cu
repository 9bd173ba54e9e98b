// The elementwise ops of ops/elementwise.h but `embed` and `norm`: a functor each, run by
// for_each_element(). Bound by memory.

#include "backend/cuda/device/device_math.h"
#include "backend/cuda/device/each_element.cuh"
#include "backend/cuda/ops/row_ops.h"
#include "base/check.h"

namespace bl::cuda {
namespace {

template <int kPack>
struct Add {
  Rows<float> x;
  Rows<const float> y;
  float multiplier;

  __device__ void operator()(std::int64_t row, std::int64_t column) const {
    const auto part = load_pack<kPack>(y[row] + column);
    change_pack<kPack>(x[row] + column,
                       [&](float sum, int i) { return fmaf(multiplier, part.at[i], sum); });
  }
};

template <int kPack>
struct Scale {
  Rows<float> x;
  float multiplier;
  float softcap;

  __device__ void operator()(std::int64_t row, std::int64_t column) const {
    change_pack<kPack>(x[row] + column, [&](float old, int) {
      const float value = old * multiplier;
      return softcap > 0.0f ? softcap * std::tanh(value / softcap) : value;
    });
  }
};

template <int kPack>
struct Gate {
  Rows<float> x;
  Rows<const float> gate;
  int share;  // elements that one gate value multiplies
  bool softplus;

  __device__ void operator()(std::int64_t row, std::int64_t column) const {
    const float* gates = gate[row];
    change_pack<kPack>(x[row] + column, [&](float value, int i) {
      const float g = gates[(static_cast<int>(column) + i) / share];
      return value * (softplus ? cuda::softplus(g) : sigmoid(g));
    });
  }
};

template <int kPack>
struct Clamp {
  Rows<float> x;
  float limit;

  __device__ void operator()(std::int64_t row, std::int64_t column) const {
    change_pack<kPack>(x[row] + column,
                       [&](float value, int) { return at_most(at_least(value, -limit), limit); });
  }
};

template <int kPack>
struct AddRow {
  Rows<float> x;
  const std::int32_t* rows;
  const float* weights;
  Rows<const float> y;

  __device__ void operator()(std::int64_t row, std::int64_t column) const {
    const float weight = weights[row];
    const auto part = load_pack<kPack>(y[row] + column);
    change_pack<kPack>(x[rows[row]] + column,
                       [&](float sum, int i) { return fmaf(weight, part.at[i], sum); });
  }
};

// Copies rows of any dtype, as units of sizeof(Unit) bytes.
template <class Unit>
struct CopyRow {
  Rows<const Unit> x;
  const std::int32_t* rows;
  Rows<Unit> out;

  __device__ void operator()(std::int64_t row, std::int64_t column) const {
    out[row][column] = x[rows[row]][column];
  }
};

template <class Unit>
bool copies_units(const TensorView& view) {
  return allows_vector_access(view, static_cast<std::int64_t>(sizeof(Unit) / size_of(view.dtype)));
}

template <class Unit>
void copy_units(ExecContext& ctx, const CopyRowsArgs& args) {
  const auto size = static_cast<std::int64_t>(size_of(args.x.dtype));
  const auto unit = static_cast<std::int64_t>(sizeof(Unit));
  const auto units = [&](std::int64_t elements) { return elements * size / unit; };
  for_each_element<1>(ctx, args.count, units(args.x.columns()),
                      CopyRow<Unit>{{args.x.as<const Unit>(), units(args.x.row_stride)},
                                    args.rows,
                                    {args.out.as<Unit>(), units(args.out.row_stride)}});
}

}  // namespace

void add(ExecContext& ctx, const AddArgs& args) {
  for_each_pack<Add>(ctx, args.x,
                     allows_vector_access(args.x, 4) && allows_vector_access(args.y, 4),
                     rows_of<float>(args.x), rows_of<const float>(args.y), args.multiplier);
}

void scale(ExecContext& ctx, const ScaleArgs& args) {
  for_each_pack<Scale>(ctx, args.x, allows_vector_access(args.x, 4), rows_of<float>(args.x),
                       args.multiplier, args.softcap);
}

void gate(ExecContext& ctx, const GateArgs& args) {
  const auto share = static_cast<int>(args.x.columns() / args.gate.columns());
  for_each_pack<Gate>(ctx, args.x, allows_vector_access(args.x, 4), rows_of<float>(args.x),
                      rows_of<const float>(args.gate), share, args.softplus);
}

void clamp(ExecContext& ctx, const ClampArgs& args) {
  for_each_pack<Clamp>(ctx, args.x, allows_vector_access(args.x, 4), rows_of<float>(args.x),
                       args.limit);
}

void copy_rows(ExecContext& ctx, const CopyRowsArgs& args) {
  BL_CHECK(args.x.dtype == args.out.dtype);
  const auto all = [&]<class Unit>(Tag<Unit>) {
    return copies_units<Unit>(args.x) && copies_units<Unit>(args.out);
  };
  if (all(Tag<uint4>{})) {
    copy_units<uint4>(ctx, args);
  } else if (size_of(args.x.dtype) <= 4 && all(Tag<std::uint32_t>{})) {
    copy_units<std::uint32_t>(ctx, args);
  } else {
    copy_units<std::uint8_t>(ctx, args);
  }
}

void add_rows(ExecContext& ctx, const AddRowsArgs& args) {
  for_each_pack<AddRow>(
      ctx, args.y, allows_vector_access(args.x, 4) && allows_vector_access(args.y, 4),
      rows_of<float>(args.x), args.rows, args.weights, rows_of<const float>(args.y));
}

}  // namespace bl::cuda
