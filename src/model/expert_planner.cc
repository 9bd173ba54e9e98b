#include "model/expert_planner.h"

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

void plan_single(LoadPlanner& planner, std::int32_t block, const std::string& at,
                 const ExpertPlanArgs& args) {
  const FeedForwardSpec& shape = args.spec.expert;
  const LoadPlanner::LinearShape in{.in = shape.hidden, .out = shape.intermediate};
  const LoadPlanner::LinearShape out{.in = shape.intermediate, .out = shape.hidden};
  for (std::int32_t e = 0; e < args.spec.experts; ++e) {
    const auto plan = [&](Role role, const Names& names, const LoadPlanner::LinearShape& of) {
      planner.linear({role, block, e}, planner.key_of(at, for_expert(names, e)), of);
    };
    if (shape.gated) plan(Role::kGate, args.arch.gate, in);
    plan(Role::kUp, args.arch.up, in);
    plan(Role::kDown, args.arch.down, out);
  }
}

const std::string* first_tensor(const LoadPlanner& planner, const std::string& at,
                                const Names& names) {
  for (const std::string& name : names) {
    if (planner.has_tensor(join_name(at, name))) return &name;
  }
  return nullptr;
}

using Rows = std::vector<std::int64_t>;

// Returns the rows of gate (first = 0) or up (first = 1) where the two alternate.
Rows every_second(std::int64_t first, std::int64_t count) {
  Rows rows(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) rows[static_cast<std::size_t>(i)] = 2 * i + first;
  return rows;
}

class StackedPlanner {
 public:
  StackedPlanner(LoadPlanner& planner, std::int32_t block, const std::string& at,
                 const ExpertPlanArgs& args)
      : planner_(planner), block_(block), at_(at), args_(args) {}

  // Whether some stack exists and single experts do not.
  bool present() const {
    const MoeArch& arch = args_.arch;
    for (const Names* names :
         {&arch.stacked_down, &arch.stacked_gate_up, &arch.stacked_gate, &arch.stacked_up}) {
      if (first_tensor(planner_, at_, *names) != nullptr) {
        return planner_.pick(at_, for_expert(arch.down, 0)) == nullptr;
      }
    }
    return false;
  }

  void plan() {
    const FeedForwardSpec& shape = args_.spec.expert;
    const MoeArch& arch = args_.arch;
    const std::string* both = first_tensor(planner_, at_, arch.stacked_gate_up);
    const std::string down_name = existing(arch.stacked_down, arch.stacked_down);
    bool transposed = arch.stacked_transposed;
    bool down_transposed = arch.stacked_down_transposed.value_or(transposed);
    const std::int64_t first_out = (both != nullptr ? 2 : 1) * shape.intermediate;
    const std::string* first_name =
        both != nullptr ? both : first_tensor(planner_, at_, arch.stacked_up);
    // One of the two matrices may be square and fit in both orientations.
    const auto both_fit = [&](bool flipped) {
      return fits(down_name, shape.intermediate, shape.hidden, down_transposed != flipped) &&
             (first_name == nullptr ||
              fits(*first_name, shape.hidden, first_out, transposed != flipped));
    };
    if (!both_fit(false) && both_fit(true)) {
      // Versions of transformers disagree about the orientation in which they save these tensors.
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
    for (std::int32_t e = 0; e < args_.spec.experts; ++e) plan_expert(e, both != nullptr);
  }

 private:
  struct Stack {
    std::vector<std::string> tensors;
    std::vector<DenseMatrix> experts;
  };

  // Returns the first name that exists. If none does, the error names the first, or the first of
  // the alternative.
  std::string existing(const Names& names, const Names& alternative) const {
    const std::string* found = first_tensor(planner_, at_, names);
    if (found != nullptr) return *found;
    planner_.fail_missing(join_name(at_, names.empty() ? alternative.at(0) : names[0]));
  }

  Stack stack(const std::string& name, std::int64_t in, std::int64_t out, bool transposed) {
    refuse_sites(name);
    StackedExperts request;
    request.tensor = join_name(at_, name);
    Stack stack{{request.tensor}, {}};
    if (planner_.has_tensor(request.tensor + "_bias")) {
      request.bias = request.tensor + "_bias";
      stack.tensors.push_back(request.bias);
    }
    request.experts = args_.spec.experts;
    request.hints.in = in;
    request.hints.out = out;
    request.hints.transposed = transposed;
    stack.experts = load_stacked_experts(planner_.source(), request);
    return stack;
  }

  // Adapters name modules. The module that holds the stacks is one; a single expert's part of them
  // is not.
  void refuse_sites(const std::string& stack) {
    const std::string module = stack.substr(0, stack.find('.'));
    planner_.refuse_sites_below(
        join_name(at_, module),
        fmt::format("all experts of a layer are in one tensor, {}, of which PEFT has no module for "
                    "an expert; adapters of bare parameters (target_parameters) are not supported",
                    quoted_name(join_name(at_, stack))));
  }

  // Whether a three-dimensional stack has this orientation; one that is flattened has any.
  bool fits(const std::string& name, std::int64_t in, std::int64_t out, bool transposed) const {
    const TensorInfo* info = planner_.source().find(join_name(at_, name));
    return info->shape.rank() != 3 ||
           (info->shape[1] == (transposed ? in : out) && info->shape[2] == (transposed ? out : in));
  }

  void plan_expert(std::int32_t expert, bool both) {
    const MoeArch& arch = args_.arch;
    const auto plan = [&](Role role, const Names& names, const Stack& stack, Rows rows) {
      planner_.linear({role, block_, expert},
                      {.matrix = stack.experts[static_cast<std::size_t>(expert)],
                       .tensors = stack.tensors,
                       .rows = std::move(rows),
                       .key = join_name(at_, for_expert(names, expert).at(0))});
    };
    const std::int64_t width = args_.spec.expert.intermediate;
    if (both && arch.stacked_interleaved) {
      plan(Role::kGate, arch.gate, up_, every_second(0, width));
      plan(Role::kUp, arch.up, up_, every_second(1, width));
    } else if (both && planner_.separates()) {
      plan(Role::kGate, arch.gate, up_, row_range(0, width));
      plan(Role::kUp, arch.up, up_, row_range(width, width));
    } else {
      if (!both && args_.spec.expert.gated) plan(Role::kGate, arch.gate, gate_, {});
      plan(Role::kUp, arch.up, up_, {});
    }
    plan(Role::kDown, arch.down, down_, {});
  }

  LoadPlanner& planner_;
  std::int32_t block_;
  const std::string& at_;
  const ExpertPlanArgs& args_;
  Stack gate_, up_, down_;
};

}  // namespace

void plan_experts(LoadPlanner& planner, std::int32_t block, const std::string& at,
                  const ExpertPlanArgs& args) {
  StackedPlanner stacked(planner, block, at, args);
  if (stacked.present()) {
    stacked.plan();
  } else {
    plan_single(planner, block, at, args);
  }
}

}  // namespace bl
