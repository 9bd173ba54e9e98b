#include "model/feed_forward_planner.h"

#include <cmath>

namespace bl {
namespace {

double softplus(double x) { return x > 20.0 ? x : std::log1p(std::exp(x)); }

// Numbers of its linears; −1: none.
struct Linears {
  std::int32_t gate = -1, up = -1, gate_up = -1, down = -1;
};

// Plans gate and up of a plain matrix that holds the one above the other.
Linears parts_of_fused(LoadPlanner& planner, const LoadTarget& place, const std::string& at,
                       const DenseMatrix& whole, const FeedForwardArch& arch) {
  const std::int64_t width = whole.out() / 2;
  const auto part = [&](Role role, const Names& names, std::int64_t first) {
    return planner.linear({role, place.block, place.index},
                          {.matrix = whole,
                           .tensors = planner.tensors_of(whole.name),
                           .rows = row_range(first, width),
                           .key = join_name(at, names.at(0))});
  };
  Linears linears;
  linears.gate = part(Role::kGate, arch.gate, 0);
  linears.up = part(Role::kUp, arch.up, width);
  return linears;
}

// Adds the names that adapters may know gate and up by, apart or fused.
void feed_forward_sites(LoadPlanner& planner, const std::string& at, const FeedForwardSpec& spec,
                        const FeedForwardArch& arch, const Linears& linears) {
  if (!spec.gated) return;
  const bool fused = linears.gate_up >= 0;
  const std::int64_t width = spec.intermediate;
  AdapterSite whole{.in = spec.hidden, .out = 2 * width};
  const auto part = [&](const Names& names, std::int32_t linear, std::int64_t first_row) {
    AdapterPart one{.linear = fused ? linears.gate_up : linear,
                    .first_column = fused ? first_row : 0,
                    .count = width};
    const std::vector<std::int64_t>& order = planner.sites().origin(one.linear).rows;
    if (!order.empty()) one.rows.assign(order.begin(), order.begin() + width);
    for (const std::string& name : names) {
      planner.add_site(join_name(at, name), {.in = spec.hidden, .out = width, .parts = {one}});
    }
    one.first_row = first_row;
    for (std::int64_t& row : one.rows) row += first_row;
    whole.parts.push_back(one);
  };
  part(arch.gate, linears.gate, 0);
  part(arch.up, linears.up, width);
  for (const std::string& name : arch.gate_up) planner.add_site(join_name(at, name), whole);
}

// The four numbers of xIELU, as FeedForward::Weights has them; absent ones have a default.
void plan_xielu(LoadPlanner& planner, LoadTarget target, const std::string& at) {
  const auto read = [&](const char* name, double fallback) {
    const std::string tensor = join_name(at, std::string("act_fn.") + name);
    return planner.has_tensor(tensor) ? double{planner.read_scalar("", {tensor})} : fallback;
  };
  const auto add = [&](Role role, double value) {
    target.role = role;
    planner.scalar(target, static_cast<float>(value));
  };
  const double beta = read("beta", 0.5);
  add(Role::kXieluAlphaP, softplus(read("alpha_p", 0.0)));
  add(Role::kXieluAlphaN, softplus(read("alpha_n", 0.0)) + beta);
  add(Role::kXieluBeta, beta);
  add(Role::kXieluEps, read("eps", -1e-6));
}

}  // namespace

void plan_feed_forward(LoadPlanner& planner, const LoadTarget& place, const std::string& at,
                       const FeedForwardSpec& spec, const FeedForwardArch& arch) {
  const auto linear = [&](Role role, const std::string& key, std::int64_t in, std::int64_t out) {
    return planner.linear({role, place.block, place.index}, key,
                          {.in = in, .out = out, .transposed = arch.transposed});
  };
  Linears linears;
  const std::string* found = arch.gate_up.empty() ? nullptr : planner.pick(at, arch.gate_up);
  const bool is_fused = spec.gated && found != nullptr && planner.pick(at, arch.gate) == nullptr;
  const std::string fused = is_fused ? join_name(at, *found) : "";
  if (is_fused && planner.separates(fused)) {
    const WeightMatrix whole = planner.whole_matrix(
        fused, {.in = spec.hidden, .out = 2 * spec.intermediate, .transposed = arch.transposed});
    linears = parts_of_fused(planner, place, at, std::get<DenseMatrix>(whole), arch);
  } else if (is_fused) {
    linears.gate_up = linear(Role::kGateUp, fused, spec.hidden, 2 * spec.intermediate);
  } else {
    if (spec.gated) {
      linears.gate =
          linear(Role::kGate, planner.key_of(at, arch.gate), spec.hidden, spec.intermediate);
    }
    linears.up = linear(Role::kUp, planner.key_of(at, arch.up), spec.hidden, spec.intermediate);
  }
  linears.down = linear(Role::kDown, planner.key_of(at, arch.down), spec.intermediate, spec.hidden);
  planner.order_hidden(linears.down, {linears.gate, linears.up, linears.gate_up});
  if (!planner.separates()) feed_forward_sites(planner, at, spec, arch, linears);
  if (spec.has_xielu) plan_xielu(planner, place, at);
}

}  // namespace bl
