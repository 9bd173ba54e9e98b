#pragma once
// Routed experts with adapters. The op for all experts of a layer has no place to add anything
// between its products, so rows whose adapters change experts are computed here: one expert at a
// time, through the same functions as all other products (nn/linear.h).
//
// Goals: works for any format, backend and mix, with little scratch. Non-goal: speed.

#include <cstddef>
#include <cstdint>
#include <span>

#include "nn/lora.h"
#include "nn/moe.h"

namespace bl {

// Does what `args` says for the rows in `rows` only (its runs index rows of args.x), including what
// their adapters add to `experts`. Each row's experts are added in the order of their indices.
// Waits until the router's choices are on the host, so it cannot be part of a recorded step.
void run_adapted_experts(ExecContext& ctx, Backend& backend, std::span<const Moe::Expert> experts,
                         const ExpertsArgs& args, const StepAdapters& rows);
// Scratch bytes that it takes for `tokens` rows, without what adapters take (lora_work_bytes).
std::size_t adapted_experts_bytes(const MoeSpec& spec, std::int64_t tokens);

}  // namespace bl
