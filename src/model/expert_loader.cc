#include "model/expert_loader.h"

#include <numeric>

#include "base/error.h"
#include "format/quoted_name.h"

namespace bl {
namespace {

Names for_expert(const Names& names, std::int64_t expert) {
  Names result = names;
  for (std::string& name : result) {
    const std::size_t at = name.find("{e}");
    if (at != std::string::npos) name.replace(at, 3, std::to_string(expert));
  }
  return result;
}

void load_single(WeightReader& reader, const std::string& at, const ExpertLoadArgs& args,
                 Moe::Weights& weights) {
  const FeedForwardSpec& shape = args.spec.expert;
  const WeightReader::LinearShape in{.in = shape.hidden, .out = shape.intermediate};
  const WeightReader::LinearShape out{.in = shape.intermediate, .out = shape.hidden};
  for (std::int64_t e = 0; e < args.spec.experts; ++e) {
    Moe::Expert expert;
    if (shape.gated) {
      expert.gate = reader.linear(reader.key_of(at, for_expert(args.arch.gate, e)), in);
    }
    expert.up = reader.linear(reader.key_of(at, for_expert(args.arch.up, e)), in);
    expert.down = reader.linear(reader.key_of(at, for_expert(args.arch.down, e)), out);
    weights.experts.push_back(std::move(expert));
  }
}

const std::string* first_tensor(const WeightReader& reader, const std::string& at,
                                const Names& names) {
  for (const std::string& name : names) {
    if (reader.has_tensor(join_name(at, name))) return &name;
  }
  return nullptr;
}

struct Stack {
  std::string tensor;
  std::int64_t in = 0;
  std::int64_t out = 0;
  bool transposed = false;
};

std::vector<DenseMatrix> read_stack(WeightReader& reader, const Stack& stack,
                                    std::int64_t experts) {
  StackedExperts request;
  request.tensor = stack.tensor;
  reader.use(stack.tensor);
  if (reader.has_tensor(stack.tensor + "_bias")) {
    request.bias = stack.tensor + "_bias";
    reader.use(request.bias);
  }
  request.experts = experts;
  request.hints.in = stack.in;
  request.hints.out = stack.out;
  request.hints.transposed = stack.transposed;
  return load_stacked_experts(reader.source(), request);
}

// Gate and up in turns: the even outputs and the odd ones.
std::vector<std::int64_t> every_second(std::int64_t first, std::int64_t count) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) rows[static_cast<std::size_t>(i)] = 2 * i + first;
  return rows;
}

class StackedLoader {
 public:
  StackedLoader(WeightReader& reader, const std::string& at, const ExpertLoadArgs& args)
      : reader_(reader),
        at_(at),
        args_(args),
        checking_(reader.phase() == WeightReader::Phase::kCheck) {}

  // One of the stacks is enough: then the others must be there too.
  bool present() const {
    const MoeArch& arch = args_.arch;
    for (const Names* names :
         {&arch.stacked_down, &arch.stacked_gate_up, &arch.stacked_gate, &arch.stacked_up}) {
      if (first_tensor(reader_, at_, *names) != nullptr) {
        return reader_.pick(at_, for_expert(arch.down, 0)) == nullptr;
      }
    }
    return false;
  }

  void load(Moe::Weights& weights) {
    const FeedForwardSpec& shape = args_.spec.expert;
    const MoeArch& arch = args_.arch;
    const std::string* both = first_tensor(reader_, at_, arch.stacked_gate_up);
    const std::string down_name = existing(arch.stacked_down, arch.stacked_down);
    bool transposed = arch.stacked_transposed;
    bool down_transposed = arch.stacked_down_transposed.value_or(transposed);
    if (!fits(down_name, shape.intermediate, shape.hidden, down_transposed) &&
        fits(down_name, shape.intermediate, shape.hidden, !down_transposed)) {
      // Versions of transformers differ in which way round they save the same architecture.
      transposed = !transposed;
      down_transposed = !down_transposed;
    }
    if (both != nullptr) {
      up_ = stack(*both, shape.hidden, 2 * shape.intermediate, transposed);
    } else {
      const auto first = [&](const Names& names) {
        return stack(existing(names, arch.stacked_gate_up), shape.hidden, shape.intermediate,
                     transposed);
      };
      if (shape.gated) gate_ = first(arch.stacked_gate);
      up_ = first(arch.stacked_up);
    }
    down_ = stack(down_name, shape.intermediate, shape.hidden, down_transposed);
    weights.fused_gate_up = both != nullptr && !arch.stacked_interleaved;
    for (std::size_t e = 0; e < static_cast<std::size_t>(args_.spec.experts); ++e) {
      weights.experts.push_back(expert(e, both != nullptr));
    }
  }

 private:
  // The first that is there; where none is, the error names the best, or that of the alternative.
  std::string existing(const Names& names, const Names& alternative) const {
    const std::string* found = first_tensor(reader_, at_, names);
    if (found != nullptr) return *found;
    reader_.fail_missing(join_name(at_, names.empty() ? alternative.at(0) : names[0]));
  }
  std::vector<DenseMatrix> stack(const std::string& name, std::int64_t in, std::int64_t out,
                                 bool transposed) {
    if (!checking_) return {};
    refuse_sites(name);
    return read_stack(reader_, {join_name(at_, name), in, out, transposed}, args_.spec.experts);
  }
  // Adapters know modules. What holds the stacks is one, a single expert's part of them is none.
  void refuse_sites(const std::string& stack) {
    const std::string module = stack.substr(0, stack.find('.'));
    reader_.refuse_sites_below(
        join_name(at_, module),
        fmt::format("all experts of a layer are in one tensor, {}, of which PEFT has no module for "
                    "an expert; adapters of bare parameters (target_parameters) are not supported",
                    quoted_name(join_name(at_, stack))));
  }
  // Whether a stack of three dimensions lies that way round.
  bool fits(const std::string& name, std::int64_t in, std::int64_t out, bool transposed) const {
    const TensorInfo* info = reader_.source().find(join_name(at_, name));
    return info->shape.rank() != 3 ||
           (info->shape[1] == (transposed ? in : out) && info->shape[2] == (transposed ? out : in));
  }
  Linear one(const std::vector<DenseMatrix>& matrices, std::size_t expert) {
    return reader_.linear(checking_ ? matrices[expert] : DenseMatrix(), 0);
  }
  Moe::Expert expert(std::size_t e, bool both) {
    Moe::Expert result;
    if (both && args_.arch.stacked_interleaved) {
      const std::int64_t width = args_.spec.expert.intermediate;
      const auto half = [&](std::int64_t first) {
        return reader_.linear(checking_ ? up_[e] : DenseMatrix(), every_second(first, width));
      };
      result.gate = half(0);
      result.up = half(1);
    } else {
      if (!both && args_.spec.expert.gated) result.gate = one(gate_, e);
      result.up = one(up_, e);
    }
    result.down = one(down_, e);
    return result;
  }

  WeightReader& reader_;
  const std::string& at_;
  const ExpertLoadArgs& args_;
  bool checking_;
  std::vector<DenseMatrix> gate_, up_, down_;
};

}  // namespace

void load_experts(WeightReader& reader, const std::string& at, const ExpertLoadArgs& args,
                  Moe::Weights& weights) {
  StackedLoader stacked(reader, at, args);
  if (stacked.present()) {
    stacked.load(weights);
  } else {
    load_single(reader, at, args, weights);
  }
}

}  // namespace bl
