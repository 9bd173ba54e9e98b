#include "convert/eight_bit_model.h"

#include <algorithm>
#include <numeric>

#include "convert/block_model.h"
#include "convert/conversion_source.h"
#include "convert/packed_tensors.h"
#include "convert/planned_model.h"
#include "convert/rounding.h"

namespace bl {
namespace {

constexpr int kBits = 8;
constexpr std::int32_t kGroup = 128;

// Packed matrices, and what else a model has.
class EightBitSource : public TensorSource {
 public:
  EightBitSource(const ModelFiles& files, const ModelLoader& loader,
                 const RemainingTensors::Keys& quantized, std::vector<PackedTensor> tensors)
      : plain_(files, loader, quantized), packed_(std::move(tensors)) {}

  const TensorInfo* find(std::string_view name) const override {
    const TensorInfo* info = packed_.find(name);
    return info != nullptr ? info : plain_.find(name);
  }
  std::vector<std::string> names() const override {
    std::vector<std::string> all = packed_.names();
    for (std::string& name : plain_.names()) all.push_back(std::move(name));
    std::sort(all.begin(), all.end());
    return all;
  }
  HostArray read(std::string_view name) const override {
    return packed_.find(name) != nullptr ? packed_.read(name) : plain_.read(name);
  }

 private:
  RemainingTensors plain_;
  PackedSource packed_;
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

  void add(const LinearSite& site) {
    const OrderedHessian hessian = identity_hessian(products_, site.in());
    const Tensor wanted = in_slot_order(products_, site.weight, hessian.perm, site.padded_out());
    Rounding::Result rounded = Rounding(products_, hessian, wanted.view())
                                   .run(uniform_groups(kBits, kGroup, site.in()), 0);
    for (PackedTensor& tensor :
         packed_tensors(site.key, std::move(rounded.matrix), products_.threads())) {
      tensors_.push_back(std::move(tensor));
    }
    quantized_.insert(site.key);
  }

  ModelFiles files(const ModelFiles& plain, const ModelLoader& loader) {
    return exl2_files(
        plain, std::make_shared<EightBitSource>(plain, loader, quantized_, std::move(tensors_)));
  }

 private:
  Products products_;
  std::vector<PackedTensor> tensors_;
  RemainingTensors::Keys quantized_;
};

}  // namespace

ModelFiles eight_bit_model(Backend& backend, const ModelFiles& files,
                           const std::filesystem::path& archs) {
  ModelLoader loader(backend, files, conversion_load_options(archs));
  check_model(loader);
  EightBitCopy copy(backend);
  for (std::size_t i = 0; i < loader.spec().order.size(); ++i) {
    const ModelPart block = ModelPart::block(loader, backend, i);
    for (const LinearSite& site : block.linears()) copy.add(site);
  }
  const ModelPart ends = ModelPart::ends(loader, backend);
  copy.add(ends.linears().front());
  return copy.files(files, loader);
}

}  // namespace bl
