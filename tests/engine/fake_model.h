#pragma once
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <vector>

#include "cache/page_memory.h"
#include "engine/request.h"
#include "engine/step_model.h"
#include "tensor/tensor.h"

namespace bl::test {

// Adapters without weights, as a fake model knows them: by how much of them is asked for.
AdapterMix adapters_of(const Request& request);

// A model without weights: what follows a text is a function of all of it. Its pages hold the
// tokens themselves, the adapters that they were read with and what the text's reach makes of them,
// and each step reads every sequence back through its page table, so that a page that was lost,
// shared wrongly or written by somebody else is noticed at once.
class FakeModel : public StepModel, private PageMemory {
 public:
  struct Options {
    std::int64_t vocab = 1000;
    std::int64_t context = 4096;
    std::int64_t step_tokens = 512;
    std::int64_t logit_rows = 16;
    std::int32_t pages = 64;
    bool gives_logits = false;  // else it chooses the tokens itself
    bool hosts_rows = false;    // … but not those of items that do not say by what
    bool repeats = false;       // steps that are under way
    bool checks = true;
    std::int64_t long_from = 0;     // keys of texts that may become longer are others; 0: all alike
    std::int64_t draft_tokens = 0;  // that it guesses; it knows its own text
    bool draft_chains = false;
    std::uint64_t identity = 1;
  };
  explicit FakeModel(const Options& options);
  static constexpr std::int32_t kEnd = 999;  // that ends an answer, where a test wants one

  Facts facts() const override;
  PagePool& pool() override { return pool_; }
  std::int64_t alike_reach(std::int64_t reach) const override {
    return options_.long_from > 0 && reach > options_.long_from ? options_.long_from + 1 : 0;
  }
  StepOutput run(std::span<const StepItem> items) override;
  void start(std::span<const StepItem> items) override;
  bool repeat(std::span<const StepItem> items) override;
  StepOutput take() override;
  StepOutput draft(std::span<const StepItem> items) override;
  void copy_page(std::int32_t to, std::int32_t from) override;
  PageMemory* page_memory() override { return this; }
  PageKind page_kind() override;

  // The token behind a text.
  std::int32_t follows(std::span<const std::int32_t> ids, const AdapterMix& adapters = {}) const;
  // The logits behind a text, where it gives any: `follows` the likeliest by far.
  std::vector<float> row(std::span<const std::int32_t> ids, const AdapterMix& adapters = {}) const;
  // The `count` tokens behind a text.
  std::vector<std::int32_t> continuation(std::vector<std::int32_t> ids, std::int64_t count,
                                         const AdapterMix& adapters = {}) const;

  // Called before each step; may throw.
  std::function<void(std::span<const StepItem>)> on_step;
  // Called before a page is copied or moved; may throw.
  std::function<void()> on_move;
  // Which texts give logits that are no numbers; where it chooses itself, it then cannot.
  std::function<bool(std::span<const std::int32_t>)> is_damaged;
  std::int64_t computed = 0;  // tokens
  std::int64_t largest_step = 0;
  std::int64_t repeated = 0;  // steps
  std::int64_t guessed = 0;   // times that it was asked to

 private:
  // A page on the host is its tokens and a checksum, so that a page which comes back is known to
  // be what has left.
  std::size_t page_bytes() const override;
  Buffer allocate_host(std::size_t bytes) override { return bl::allocate_host(bytes); }
  void write_page(std::byte* host, std::int32_t page) override;
  void read_page(std::int32_t page, const std::byte* host) override;
  void finish_moves() override {}

  // What a slot of the item holds beside its token.
  std::int32_t tag_of(const StepItem& item) const;
  // `behind`: the token that stands at the end of the item's ids without being one of them yet.
  void write(const StepItem& item, std::optional<std::int32_t> behind = {});
  void check(const StepItem& item, std::optional<std::int32_t> behind = {}) const;
  void answer(std::span<const std::int32_t> text, const StepItem& item);
  // A step's output: `rows` of logits_, and `ids` where it chooses.
  StepOutput output_of(std::int64_t rows, std::span<const std::int32_t> ids) const;

  Options options_;
  PagePool pool_;
  std::vector<std::int32_t> slots_;  // the token in each slot of each page, and its adapters
  std::vector<std::int32_t> ids_;
  Tensor logits_;
  std::int64_t rows_ = 0;  // of logits_ that the step has filled
  struct UnderWay {
    std::vector<const Sequence*> sequences;
    std::vector<std::int32_t> ids;
    std::int64_t rows = 0;
  };
  std::deque<UnderWay> under_way_;
  std::vector<std::int32_t> taken_;
};

}  // namespace bl::test
