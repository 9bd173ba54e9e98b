#pragma once
#include <memory>

#include "engine/state_room.h"
#include "engine/step_model.h"
#include "engine/step_runner.h"

namespace bl {

// A loaded model as the StepModel of an engine.
class SessionModel : public StepModel {
 public:
  // The session must outlive it.
  explicit SessionModel(ModelSession& session) : session_(session), runner_(session) {}

  Facts facts() const override {
    return {.vocab = session_.vocab(),
            .ids = session_.model().embedding_rows(),
            .context = session_.context(),
            .step_tokens = session_.step_tokens(),
            .logit_rows = session_.logit_rows(),
            .sequences = session_.sequences(),
            .draft_tokens = session_.draft_tokens(),
            .draft_chains = session_.draft_chains()};
  }
  PagePool& pool() override { return session_.cache().pool(); }
  StepOutput run(std::span<const StepItem> items) override { return runner_.choose(items); }
  void start(std::span<const StepItem> items) override { runner_.start(items); }
  StepOutput take() override { return runner_.take(); }
  bool repeat(std::span<const StepItem> items) override {
    return session_.backend().runs_ahead() && runner_.repeat(items);
  }
  StepOutput draft(std::span<const StepItem> items) override { return runner_.draft(items); }
  void run_states(std::span<const StepItem> items, std::vector<float>& states) override;
  void copy_page(std::int32_t to, std::int32_t from) override {
    session_.cache().copy_page(to, from);
  }
  PageMemory* page_memory() override { return &session_.cache(); }
  std::int64_t alike_reach(std::int64_t reach) const override {
    return session_.alike_reach(reach);
  }
  PageKind page_kind() override { return session_.page_kind(); }
  // A device needs a copy command per layer, which takes as long as some tokens of prefill.
  std::int64_t least_copied() const override {
    return session_.backend().reads_host_memory() ? 2 : 16;
  }
  std::unique_ptr<PreparedAdapter> prepare_adapter(
      const std::filesystem::path& folder) const override {
    return session_.prepare_adapter(folder);
  }
  std::shared_ptr<const LoraAdapter> pack_adapter(const PreparedAdapter& adapter,
                                                  std::size_t used) override {
    return session_.pack_adapter(adapter, used);
  }
  std::size_t adapter_bytes(const PreparedAdapter& adapter) override {
    return adapter.bytes(session_.backend());
  }
  ThreadPool* threads() override { return session_.backend().threads(); }

 private:
  ModelSession& session_;
  StepRunner runner_;
  std::unique_ptr<StateRoom> states_;  // made with the first run_states()
};

}  // namespace bl
