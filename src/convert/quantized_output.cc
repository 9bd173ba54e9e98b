#include "convert/quantized_output.h"

#include <cmath>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/pending_folder.h"
#include "convert/linear_source.h"
#include "format/quoted_name.h"
#include "format/safetensors_writer.h"

namespace bl {
namespace {

// The name of a module without the tensor's own last word.
std::string module_of(const std::string& tensor) { return tensor.substr(0, tensor.rfind('.')); }

std::vector<Half> halves_of(const std::string& name, const TensorView& view) {
  std::vector<Half> halves;
  halves.reserve(static_cast<std::size_t>(view.shape.elements()));
  visit_float_dtype(view.dtype, [&]<class T>(Tag<T>) {
    for (std::int64_t i = 0; i < view.shape.elements(); ++i) {
      const auto value = static_cast<float>(view.as<const T>()[i]);
      const Half half(value);
      if (std::isfinite(value) && !std::isfinite(static_cast<float>(half))) {
        fail(ErrorCode::kInvalidArgument, "{} has the value {}, which is beyond binary16",
             quoted_name(name), value);
      }
      halves.push_back(half);
    }
  });
  return halves;
}

class QuantizedOutput {
 public:
  explicit QuantizedOutput(const QuantizedOutputArgs& args) : args_(args) {
    RemainingTensors::Keys quantized;
    for (std::size_t part = 0; part < args.parts; ++part) {
      parts_.push_back(std::make_unique<SafetensorsFile>(args.rate.open_part(part)));
      for (const SafetensorsEntry& entry : parts_.back()->entries()) {
        packed_[entry.name] = {parts_.back().get(), &entry};
        quantized.insert(module_of(entry.name));
      }
    }
    plain_.emplace(args.files, args.loader, quantized);
  }

  std::uint64_t write() {
    std::vector<TensorPlan> plans = plan();
    std::uint64_t bytes = 0;
    for (const TensorPlan& plan : plans) bytes += plan.bytes();
    check_space(args_.folder, bytes);
    ShardWriter writer(args_.folder, std::move(plans), args_.shards);
    for (const TensorPlan& plan : writer.tensors()) write_tensor(writer, plan);
    writer.commit();
    std::uint64_t written = 0;
    for (const std::string& name : writer.file_names()) {
      written += std::filesystem::file_size(args_.folder / name);
    }
    write_file_atomically(args_.folder / "config.json", json_text(args_.config, 4) + "\n");
    return written;
  }

 private:
  struct Packed {
    const SafetensorsFile* file = nullptr;
    const SafetensorsEntry* entry = nullptr;
  };

  std::vector<TensorPlan> plan() const {
    std::vector<TensorPlan> plans;
    for (const std::string& name : plain_->names()) {
      plans.push_back(plan_tensor(name, DType::kF16, plain_->find(name)->shape));
    }
    for (const auto& [name, packed] : packed_) {
      plans.push_back({name, *packed.entry->dtype, packed.entry->shape});
    }
    return plans;
  }

  void write_tensor(ShardWriter& writer, const TensorPlan& plan) const {
    const auto packed = packed_.find(plan.name);
    if (packed != packed_.end()) {
      return writer.write(packed->second.file->bytes_of(*packed->second.entry));
    }
    const HostArray array = plain_->read(plan.name);
    const std::vector<Half> halves = halves_of(plan.name, array.view);
    writer.write(std::as_bytes(std::span(halves)));
    plain_->done_with(plan.name);
  }

  const QuantizedOutputArgs& args_;
  std::vector<std::unique_ptr<SafetensorsFile>> parts_;
  std::map<std::string, Packed> packed_;
  std::optional<RemainingTensors> plain_;
};

}  // namespace

std::uint64_t write_quantized(const QuantizedOutputArgs& args) {
  return QuantizedOutput(args).write();
}

}  // namespace bl
