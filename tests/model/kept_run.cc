#include "model/kept_run.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "cache/kv_cache.h"
#include "cache/page_table.h"
#include "model/golden.h"

namespace bl::test {
namespace {

// What the last attention was asked for.
struct Listener {
  OpTable ops;
  const OpTable* plain = nullptr;
  std::int64_t query_rows = 0;
  bool past_is_new = false;
};

Listener& listener() {
  static Listener it;
  return it;
}

void hear(const AttentionArgs& args) {
  listener().query_rows = args.q.shape[0];
  listener().past_is_new = args.past_is_new;
  std::int32_t next = 0;
  for (const SequenceSpan& span : args.sequences) {
    EXPECT_EQ(span.first_token, next);
    next += span.tokens;
  }
  EXPECT_EQ(next, args.q.shape[0]);
}

void listening_attention(ExecContext& ctx, const AttentionArgs& args) {
  hear(args);
  listener().plain->attention(ctx, args);
}

void listening_rope_write_attend(ExecContext& ctx, const RopeAndWriteArgs& rope,
                                 const AttentionArgs& args) {
  hear(args);
  listener().plain->rope_write_attend(ctx, rope, args);
}

class KeptRun {
 public:
  KeptRun(Backend& backend, const Model& model, CacheType type, const std::vector<KeptText>& texts)
      : backend_(backend),
        model_(model),
        texts_(texts),
        cache_(backend, model.kv_layouts(type), pages_of(texts)) {
    for (const PagedKvView& view : cache_.layers()) {
      std::memset(view.k, 0, bytes(view, view.layout.k_page_bytes()));
      std::memset(view.v, 0, bytes(view, view.layout.v_page_bytes()));
    }
    for (const KeptText& text : texts) {
      PageTable& table = tables_.emplace_back(cache_.pool());
      BL_CHECK(table.reserve(std::ssize(text.ids)));
    }
    if (!listens()) return;
    listener() = {backend.ops(), &backend.ops(), 0};
    listener().ops.attention = listening_attention;
    if (listener().plain->rope_write_attend != nullptr) {
      listener().ops.rope_write_attend = listening_rope_write_attend;
    }
  }

  // The positions before, or those behind, of all texts; logits of the wanted ones.
  std::vector<float> step(bool before, WantedRows rows) {
    StepBatch batch;
    std::vector<bool> is_wanted;  // of the rows with logits
    for (std::size_t i = 0; i < texts_.size(); ++i) add(i, before, rows, batch, is_wanted);
    if (batch.ids.empty()) return {};
    const auto tokens = std::ssize(batch.ids);
    const auto count = std::ssize(batch.logit_rows);
    Arena scratch(backend_.allocate(model_.work_bytes(tokens, count)));
    ExecContext ctx = backend_.context(scratch);
    if (listens()) ctx.ops = &listener().ops;
    const TensorView logits = model_.forward(ctx, batch, cache_.layers());
    std::vector<float> wanted;
    for (std::size_t i = 0; i < is_wanted.size(); ++i) {
      const float* row = logits.row<float>(static_cast<std::int64_t>(i));
      if (is_wanted[i]) wanted.insert(wanted.end(), row, row + model_.vocab());
    }
    return wanted;
  }

  std::vector<std::byte> cache() const {
    std::vector<std::byte> all;
    for (const PagedKvView& view : cache_.layers()) {
      all.insert(all.end(), view.k, view.k + bytes(view, view.layout.k_page_bytes()));
      all.insert(all.end(), view.v, view.v + bytes(view, view.layout.v_page_bytes()));
    }
    return all;
  }

 private:
  // Tables of other backends hold more than can be copied.
  bool listens() const { return backend_.name() == "ref"; }
  static std::int32_t pages_of(const std::vector<KeptText>& texts) {
    std::int32_t pages = 0;
    for (const KeptText& text : texts) pages += KvCache::pages_for(std::ssize(text.ids));
    return pages;
  }
  static std::size_t bytes(const PagedKvView& view, std::size_t page) {
    return static_cast<std::size_t>(view.pages) * page;
  }

  void add(std::size_t index, bool before, WantedRows rows, StepBatch& batch,
           std::vector<bool>& is_wanted) const {
    const KeptText& text = texts_[index];
    const auto length = static_cast<std::int32_t>(text.ids.size());
    const std::int32_t begin = before ? 0 : text.past;
    const std::int32_t end = before ? text.past : length;
    if (begin == end) return;
    const std::span<const std::int32_t> pages = tables_[index].pages();
    batch.sequences.push_back({.first_token = static_cast<std::int32_t>(batch.ids.size()),
                               .tokens = end - begin,
                               .past = begin,
                               .pages = {pages.begin(), pages.end()},
                               // Another one each: some tables of frequencies hang on it.
                               .reach = length + 100 * static_cast<std::int64_t>(index),
                               .adapters = text.adapters});
    for (std::int32_t i = begin; i < end; ++i) {
      const bool wanted = std::find(text.wanted.begin(), text.wanted.end(), i) != text.wanted.end();
      if (wanted || rows == WantedRows::kAll) {
        batch.logit_rows.push_back(static_cast<std::int32_t>(batch.ids.size()));
        is_wanted.push_back(wanted);
      }
      batch.ids.push_back(text.ids[static_cast<std::size_t>(i)]);
      batch.positions.push_back(i);
      batch.slots.push_back(tables_[index].slot(i));
    }
  }

  Backend& backend_;
  const Model& model_;
  const std::vector<KeptText>& texts_;
  KvCache cache_;
  std::vector<PageTable> tables_;
};

}  // namespace

KeptResult run_kept(Backend& backend, const Model& model, CacheType type,
                    const std::vector<KeptText>& texts, WantedRows rows) {
  KeptRun run(backend, model, type, texts);
  run.step(true, rows);
  KeptResult result;
  result.logits = run.step(false, rows);
  result.cache = run.cache();
  if (backend.name() == "ref") {
    result.query_rows = listener().query_rows;
    result.past_is_new = listener().past_is_new;
  }
  return result;
}

std::int64_t expect_kept_equals_all(Backend& backend, const Model& model, CacheType type,
                                    const std::vector<KeptText>& texts) {
  const KeptResult all = run_kept(backend, model, type, texts, WantedRows::kAll);
  const KeptResult few = run_kept(backend, model, type, texts, WantedRows::kFew);
  EXPECT_FALSE(few.logits.empty());
  EXPECT_EQ(few.logits.size(), all.logits.size());
  if (few.logits.size() == all.logits.size()) {
    EXPECT_EQ(largest_difference(few.logits, all.logits), 0.0);
  }
  EXPECT_TRUE(few.cache == all.cache) << "other keys or values";
  // A device must know which keys it cannot read ahead of the launches before.
  EXPECT_FALSE(all.past_is_new);
  EXPECT_EQ(few.past_is_new, few.query_rows < all.query_rows);
  return few.query_rows;
}

}  // namespace bl::test
