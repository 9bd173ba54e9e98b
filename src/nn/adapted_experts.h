#pragma once
// Routed experts with adapters. The op that multiplies by all experts of a layer leaves no place to
// add anything between its products, so rows whose adapters change experts take this way: each
// expert by itself, through the seam of all other products (nn/linear.h).
//
// Goals: any format, backend and mix, at scratch that no plan notices. Non-goals: speed.

#include <cstddef>
#include <cstdint>
#include <span>

#include "nn/lora.h"
#include "nn/moe.h"

namespace bl {

// What `args` says, for the rows of `rows` alone (its runs name rows of args.x), with what their
// adapters add to `experts`. Each row's experts are added in the order of their numbers. Waits for
// the choices to come to the host, so it cannot be part of a recorded step.
void run_adapted_experts(ExecContext& ctx, Backend& backend, std::span<const Moe::Expert> experts,
                         const ExpertsArgs& args, const StepAdapters& rows);
// Scratch that it takes for so many rows, without what their adapters take (lora_work_bytes).
std::size_t adapted_experts_bytes(const MoeSpec& spec, std::int64_t tokens);

}  // namespace bl
