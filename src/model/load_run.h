#pragma once
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "format/tensor_source.h"
#include "model/load_plan.h"
#include "model/loaded_weights.h"
#include "ops/backend.h"

namespace bl {

// Executes tasks of a plan on a backend. Small matrices are packed several at a time on the
// backend's threads where it allows that (Backend::packs_at_once); elsewhere tasks run one after
// another, in the order given.
class LoadRun {
 public:
  struct Args {
    Backend& backend;
    // The source that the plan was made from; several threads may call its done_with().
    const TensorSource& source;
    LoadPlan& plan;
    // Whether a task gives up what the plan holds of its matrix (permutations, GPTQ scales), so
    // that memory does not hold it beside the packed matrix. It cannot run again then.
    bool release = false;
    // Called from this thread after each matrix or table, with its stored bytes; may throw to stop.
    std::function<void(std::size_t)> done = {};
  };
  // Results go to `to`. All arguments must outlive the run.
  LoadRun(const Args& args, LoadedWeights& to)
      : args_(args), seeded_source_(args.source), to_(to) {}

  // `tasks`: ids, each once, in any order.
  void run(std::span<const std::int32_t> tasks);

 private:
  struct Packed {
    std::unique_ptr<PackedMatrix> weight;
    HostArray bias;
    std::exception_ptr error;
  };
  LoadTask& task(std::int32_t id) { return args_.plan.tasks[static_cast<std::size_t>(id)]; }
  bool packs_at_once() const;
  void run_wave();
  // Several threads may call it at once, for different tasks.
  Packed pack(LoadTask& task, bool one_thread) const;
  void place(const LoadTask& task, Packed packed);
  void run_one(const LoadTask& task);
  Tensor vector(const VectorWork& work) const;
  HostArray table(const LoadTask& task, const TableWork& work) const;
  Buffer table_memory(std::size_t bytes, bool on_host) const;
  Tensor upload_bias(const HostArray& bias, const MatrixWork& work) const;

  Args args_;
  SeededSource seeded_source_;
  LoadedWeights& to_;
  std::vector<std::int32_t> wave_;  // matrices that will be packed together
  std::size_t wave_bytes_ = 0;
};

}  // namespace bl
