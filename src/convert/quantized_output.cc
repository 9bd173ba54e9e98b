#include "convert/quantized_output.h"

#include <cmath>
#include <functional>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "base/pending_folder.h"
#include "convert/fused_gptq.h"
#include "convert/linear_source.h"
#include "convert/source_names.h"
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
  explicit QuantizedOutput(const QuantizedOutputArgs& args)
      : args_(args), names_(args.files, args.loader) {
    RemainingTensors::Keys quantized;
    for (std::size_t part = 0; part < args.parts; ++part) {
      parts_.push_back(std::make_unique<SafetensorsFile>(args.rate.open_part(part)));
      for (const SafetensorsEntry& entry : parts_.back()->entries()) {
        quantized.insert(module_of(entry.name));
      }
    }
    plain_.emplace(args.files, args.loader, quantized, args.as_in_source);
    if (args.as_in_source) modules_ = fused_modules(args.loader);
  }

  std::uint64_t write() {
    add_plain();
    for (const auto& part : parts_) add_part(*part);
    std::vector<TensorPlan> plans;
    std::uint64_t bytes = 0;
    for (const auto& [place, piece] : pieces_) {
      plans.push_back(piece.plan);
      bytes += piece.plan.bytes();
    }
    check_space(args_.folder, bytes);
    ShardWriter writer(args_.folder, std::move(plans), args_.shards);
    for (const TensorPlan& plan : writer.tensors()) {
      const auto plain = pieces_.find({false, plan.name});
      (plain != pieces_.end() ? plain->second : pieces_.at({true, plan.name})).write(writer);
    }
    writer.commit();
    std::uint64_t written = 0;
    for (const std::string& name : writer.file_names()) {
      written += std::filesystem::file_size(args_.folder / name);
    }
    write_file_atomically(args_.folder / "config.json", json_text(args_.config, 4) + "\n");
    return written;
  }

 private:
  // A tensor of the result.
  struct Piece {
    TensorPlan plan;
    std::function<void(ShardWriter&)> write;
  };

  void add(bool packed, TensorPlan plan, std::function<void(ShardWriter&)> write) {
    if (args_.as_in_source) plan.name = names_.name_of(plan.name);
    const std::string name = plan.name;
    pieces_[{packed, name}] = {std::move(plan), std::move(write)};
  }

  void add_plain() {
    for (const std::string& name : plain_->names()) {
      add(false, plan_tensor(name, DType::kF16, plain_->find(name)->shape),
          [this, name](ShardWriter& writer) {
            const std::vector<Half> halves = halves_of(name, plain_->read(name).view);
            writer.write(std::as_bytes(std::span(halves)));
            plain_->done_with(name);
          });
    }
  }

  void add_part(const SafetensorsFile& part) {
    RemainingTensors::Keys fused;
    for (const FusedModule& module : modules_) {
      if (part.find(module.parts.front().key + ".qweight") == nullptr) continue;
      for (const FusedModule::Part& one : module.parts) fused.insert(one.key);
      const FusedGptq whole(module, part);
      for (const TensorPlan& plan : whole.plans()) {
        add(true, plan, [whole, plan](ShardWriter& writer) { writer.write(whole.bytes_of(plan)); });
      }
    }
    for (const SafetensorsEntry& entry : part.entries()) {
      if (fused.contains(module_of(entry.name))) continue;
      add(true, {entry.name, *entry.dtype, entry.shape},
          [&part, &entry](ShardWriter& writer) { writer.write(part.bytes_of(entry)); });
    }
  }

  const QuantizedOutputArgs& args_;
  SourceNames names_;
  std::vector<std::unique_ptr<SafetensorsFile>> parts_;
  std::optional<RemainingTensors> plain_;
  std::vector<FusedModule> modules_;
  // By whether they are quantized, and their names: the order of planned_tensors().
  std::map<std::pair<bool, std::string>, Piece> pieces_;
};

}  // namespace

std::uint64_t write_quantized(const QuantizedOutputArgs& args) {
  return QuantizedOutput(args).write();
}

}  // namespace bl
