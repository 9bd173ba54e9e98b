#include "convert/eight_bit_model.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "convert/block_model.h"
#include "convert/packed_tensors.h"
#include "convert/rounding.h"
#include "model/checkpoint_names.h"
#include "model/renamed_source.h"

namespace bl {
namespace {

constexpr int kBits = 8;
constexpr std::int32_t kGroup = 128;

// Packed matrices, and what else a model has.
class EightBitSource : public TensorSource {
 public:
  EightBitSource(std::shared_ptr<const TensorSource> files, const CheckpointNames& names,
                 std::vector<PackedTensor> tensors, std::set<std::string, std::less<>> replaced)
      : files_(std::move(files)),
        plain_(*files_, names),
        packed_(std::move(tensors)),
        replaced_(std::move(replaced)) {}

  const TensorInfo* find(std::string_view name) const override {
    if (const TensorInfo* info = packed_.find(name)) return info;
    return replaced_.contains(name) ? nullptr : plain_.find(name);
  }
  std::vector<std::string> names() const override {
    std::vector<std::string> all = packed_.names();
    for (std::string& name : plain_.names()) {
      if (!replaced_.contains(name)) all.push_back(std::move(name));
    }
    std::sort(all.begin(), all.end());
    return all;
  }
  HostArray read(std::string_view name) const override {
    return packed_.find(name) != nullptr ? packed_.read(name) : plain_.read(name);
  }

 private:
  std::shared_ptr<const TensorSource> files_;
  RenamedSource plain_;
  PackedSource packed_;
  std::set<std::string, std::less<>> replaced_;
};

// A Hessian for which every weight takes its nearest value.
OrderedHessian identity_hessian(Products& products, std::int64_t n) {
  OrderedHessian hessian;
  hessian.perm.resize(static_cast<std::size_t>(n));
  std::iota(hessian.perm.begin(), hessian.perm.end(), 0);
  const Tensor one = zero_matrix(n, n);
  for (std::int64_t i = 0; i < n; ++i) one.view().row<float>(i)[i] = 1.0f;
  hessian.h = products.from_host(one.view());
  hessian.u_transposed = products.from_host(one.view());
  std::vector<float> ones(static_cast<std::size_t>(n), 1.0f);
  hessian.importance = products.from_host(view_of(ones.data(), {n}));
  hessian.tokens = 1;
  return hessian;
}

class EightBitCopy {
 public:
  explicit EightBitCopy(Backend& backend) : products_(backend) {}

  void add(const LinearSite& site, const std::string& key) {
    const OrderedHessian hessian = identity_hessian(products_, site.in());
    const Tensor wanted = in_slot_order(products_, site.weight, hessian.perm, site.padded_out());
    Rounding::Result rounded = Rounding(products_, hessian, wanted.view())
                                   .run(uniform_groups(kBits, kGroup, site.in()), 0);
    for (PackedTensor& tensor : packed_tensors(key, std::move(rounded.matrix))) {
      tensors_.push_back(std::move(tensor));
    }
    replaced_.insert(key + ".weight");
  }

  ModelFiles files(const ModelFiles& plain, const CheckpointNames& names) {
    ModelFiles result = plain;
    result.config["quantization_config"] = {{"quant_method", "exl2"}};
    result.source = std::make_shared<EightBitSource>(plain.source, names, std::move(tensors_),
                                                     std::move(replaced_));
    result.gptq.reset();
    return result;
  }

 private:
  Products products_;
  std::vector<PackedTensor> tensors_;
  std::set<std::string, std::less<>> replaced_;
};

}  // namespace

ModelFiles eight_bit_model(Backend& backend, const ModelFiles& files,
                           const std::filesystem::path& archs) {
  LoadOptions options;
  options.archs = archs;
  ModelLoader loader(backend, files, options);
  EightBitCopy copy(backend);
  for (std::size_t i = 0; i < loader.spec().order.size(); ++i) {
    const ModelPart block = ModelPart::block(loader, backend, i);
    for (const LinearSite& site : block.linears()) copy.add(site, site.key);
  }
  const ModelPart ends = ModelPart::ends(loader, backend);
  copy.add(ends.linears().front(), loader.spec().arch->head.at(0));
  return copy.files(files, CheckpointNames(*loader.spec().arch));
}

}  // namespace bl
