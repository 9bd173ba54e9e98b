#include "fake_model.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "ops/kv_layout.h"

namespace bl::test {
namespace {

std::uint64_t sum_of(std::span<const std::int32_t> ids) {
  std::uint64_t sum = ids.size();
  for (const std::int32_t id : ids) {
    sum = (sum ^ static_cast<std::uint32_t>(id)) * 0x9e3779b97f4a7c15u;
  }
  return sum;
}

// A small number for each mix.
std::int32_t tag_of_mix(const AdapterMix* adapters) {
  std::int32_t tag = 0;
  if (adapters == nullptr) return tag;
  for (const WeightedAdapter& one : *adapters) {
    tag = tag * 31 + static_cast<std::int32_t>(one.weight * 4);
  }
  return tag % 1000;
}

// What a slot holds.
std::int32_t held(std::int32_t id, std::int32_t tag) { return id + (tag << 16); }

}  // namespace

AdapterMix adapters_of(const Request& request) {
  AdapterMix mix;
  for (const AdapterChoice& choice : request.adapters) {
    mix.push_back({nullptr, static_cast<float>(choice.weight)});
  }
  return mix;
}

FakeModel::FakeModel(const Options& options)
    : options_(options),
      pool_(options.pages),
      slots_(static_cast<std::size_t>(options.pages) * kPageSlots, -1),
      logits_(make_host_tensor(DType::kF32, {options.logit_rows, options.vocab})) {}

StepModel::Facts FakeModel::facts() const {
  return {.vocab = options_.vocab,
          .ids = options_.vocab,
          .context = options_.context,
          .step_tokens = options_.step_tokens,
          .logit_rows = options_.logit_rows,
          .draft_tokens = options_.draft_tokens,
          .draft_chains = options_.draft_chains};
}

std::int32_t FakeModel::follows(std::span<const std::int32_t> ids,
                                const AdapterMix& adapters) const {
  std::uint64_t hash = 1469598103934665603u + static_cast<std::uint64_t>(tag_of_mix(&adapters));
  // The last tokens decide when nobody checks: a long text would cost more than the engine.
  const std::size_t begin = options_.checks ? 0 : ids.size() - 1;
  for (std::size_t i = begin; i < ids.size(); ++i) {
    hash = (hash ^ static_cast<std::uint64_t>(ids[i])) * 1099511628211u;
  }
  return static_cast<std::int32_t>((hash >> 20) % static_cast<std::uint64_t>(options_.vocab));
}

std::vector<std::int32_t> FakeModel::continuation(std::vector<std::int32_t> ids, std::int64_t count,
                                                  const AdapterMix& adapters) const {
  std::vector<std::int32_t> out;
  for (std::int64_t i = 0; i < count; ++i) {
    out.push_back(follows(ids, adapters));
    ids.push_back(out.back());
  }
  return out;
}

std::vector<float> FakeModel::row(std::span<const std::int32_t> ids,
                                  const AdapterMix& adapters) const {
  const std::int32_t id = follows(ids, adapters);
  std::vector<float> logits(static_cast<std::size_t>(options_.vocab));
  for (std::int64_t i = 0; i < options_.vocab; ++i) {
    logits[static_cast<std::size_t>(i)] = static_cast<float>((i * 7 + id) % 13) * 0.1f;
  }
  logits[static_cast<std::size_t>(id)] = 20;
  return logits;
}

std::int32_t FakeModel::tag_of(const StepItem& item) const {
  return tag_of_mix(item.adapters) + (alike_reach(item.sequence->reach) > 0 ? 1000 : 0);
}

void FakeModel::write(const StepItem& item, std::optional<std::int32_t> behind) {
  const Sequence& sequence = *item.sequence;
  const std::int32_t tag = tag_of(item);
  for (std::int64_t i = sequence.cached; i < sequence.cached + item.count; ++i) {
    const std::int64_t slot = sequence.pages.slot(i);
    const std::int32_t id = behind ? *behind : sequence.ids[static_cast<std::size_t>(i)];
    // Others may read a page that is being filled, and nobody writes into one that others hold in
    // full, so what is overwritten must belong to nobody else: at most the index keeps a part.
    const auto page = static_cast<std::int32_t>(slot / kPageSlots);
    BL_CHECK(pool_.references(page) <= (pool_.is_kept(page) ? 2 : 1));
    slots_[static_cast<std::size_t>(slot)] = held(id, tag);
  }
}

void FakeModel::check(const StepItem& item, std::optional<std::int32_t> behind) const {
  const Sequence& sequence = *item.sequence;
  const std::int32_t tag = tag_of(item);
  for (std::int64_t i = 0; i < sequence.cached + item.count; ++i) {
    const bool last = behind && i == sequence.cached;
    const std::int32_t id = last ? *behind : sequence.ids[static_cast<std::size_t>(i)];
    BL_CHECK(slots_[static_cast<std::size_t>(sequence.pages.slot(i))] == held(id, tag));
  }
}

// One row: what follows the text.
void FakeModel::answer(std::span<const std::int32_t> text, const StepItem& item) {
  const AdapterMix mix = item.adapters == nullptr ? AdapterMix() : *item.adapters;
  const bool damaged = is_damaged && is_damaged(text);
  const bool is_hosts = options_.hosts_rows && item.sampling == nullptr;
  ids_.push_back(damaged || is_hosts ? -1 : follows(text, mix));
  if (!options_.gives_logits && !options_.hosts_rows && !is_damaged) return;
  const std::vector<float> values = row(text, mix);
  float* logits = logits_.view().row<float>(rows_++);
  std::copy(values.begin(), values.end(), logits);
  if (damaged) logits[3] = std::numeric_limits<float>::quiet_NaN();
}

StepOutput FakeModel::run(std::span<const StepItem> items) {
  if (on_step) on_step(items);
  ids_.clear();
  rows_ = 0;
  std::int64_t tokens = 0;
  for (const StepItem& item : items) {
    Sequence& sequence = *item.sequence;
    BL_CHECK(item.count > 0);
    tokens += item.count;
    write(item);
    const std::int64_t end = sequence.cached + item.count;
    if (options_.checks) check(item);
    for (std::int64_t i = sequence.cached; i < end; ++i) {
      if (item.logits == LogitRows::kAll || (item.logits == LogitRows::kLast && i + 1 == end)) {
        answer(std::span(sequence.ids).first(static_cast<std::size_t>(i) + 1), item);
      }
    }
    sequence.cached = end;
  }
  BL_CHECK(tokens <= options_.step_tokens);
  BL_CHECK(static_cast<std::int64_t>(ids_.size()) <= options_.logit_rows);
  computed += tokens;
  largest_step = std::max(largest_step, tokens);
  return output_of(rows_, ids_);
}

StepOutput FakeModel::output_of(std::int64_t rows, std::span<const std::int32_t> ids) const {
  const TensorView logits = rows > 0 ? slice_rows(logits_.view(), 0, rows) : TensorView();
  if (!options_.gives_logits) return {logits, ids};
  return {logits, {}};
}

void FakeModel::start(std::span<const StepItem> items) {
  under_way_.clear();
  run(items);
  UnderWay& step = under_way_.emplace_back();
  for (const StepItem& item : items) step.sequences.push_back(item.sequence);
  step.ids = ids_;
  step.rows = rows_;
}

bool FakeModel::repeat(std::span<const StepItem> items) {
  if (!options_.repeats || options_.gives_logits) return false;
  const auto waits = [](const StepItem& item) {
    return item.sampling != nullptr && needs_history(*item.sampling);
  };
  if (std::any_of(items.begin(), items.end(), waits)) return false;
  BL_CHECK(under_way_.size() == 1 && under_way_.front().sequences.size() >= items.size());
  if (on_step) on_step(items);
  const UnderWay before = under_way_.front();
  UnderWay step;
  ids_.clear();
  rows_ = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const StepItem& item = items[i];
    const Sequence& sequence = *item.sequence;
    BL_CHECK(item.sequence == before.sequences[i] && item.count == 1 && item.sampling != nullptr);
    BL_CHECK(sequence.cached == static_cast<std::int64_t>(sequence.ids.size()));
    const std::int32_t id = std::max(before.ids[i], 0);
    write(item, id);
    if (options_.checks) check(item, id);
    std::vector<std::int32_t> text = sequence.ids;
    text.push_back(id);
    answer(text, item);
    step.sequences.push_back(item.sequence);
  }
  step.ids = ids_;
  step.rows = rows_;
  under_way_.push_back(std::move(step));
  computed += static_cast<std::int64_t>(items.size());
  ++repeated;
  return true;
}

StepOutput FakeModel::take() {
  BL_CHECK(!under_way_.empty());
  const UnderWay step = std::move(under_way_.front());
  under_way_.pop_front();
  taken_ = step.ids;
  // A step behind it has taken the place of its logits.
  return output_of(under_way_.empty() ? step.rows : 0, taken_);
}

// Guesses leave what is no token in the slots behind the text, as far as guessing may go.
StepOutput FakeModel::draft(std::span<const StepItem> items) {
  ids_.clear();
  rows_ = 0;
  for (const StepItem& item : items) {
    Sequence& sequence = *item.sequence;
    BL_CHECK(sequence.cached + 1 == static_cast<std::int64_t>(sequence.ids.size()));
    BL_CHECK(item.count > 0 && item.count <= options_.draft_tokens);
    StepItem read = item;
    read.count = 0;
    if (options_.checks) check(read);
    read.count = 1 + options_.draft_tokens;
    write(read, -1);
    std::vector<std::int32_t> text = sequence.ids;
    text.insert(text.end(), item.guessed.begin(), item.guessed.end());
    BL_CHECK(options_.draft_chains ? item.count == std::ssize(item.guessed) + 1
                                   : item.guessed.empty());
    for (std::int64_t i = options_.draft_chains ? item.count - 1 : 0; i < item.count; ++i) {
      answer(text, item);
      text.push_back(follows(text));
    }
    ++guessed;
  }
  const std::int64_t each = options_.draft_chains ? 1 : 1 + options_.draft_tokens;
  BL_CHECK(static_cast<std::int64_t>(items.size()) * each <= options_.step_tokens);
  BL_CHECK(static_cast<std::int64_t>(ids_.size()) <= options_.logit_rows);
  return output_of(rows_, ids_);
}

void FakeModel::copy_page(std::int32_t to, std::int32_t from) {
  if (on_move) on_move();
  BL_CHECK(to != from && pool_.references(to) == 1 && pool_.references(from) > 0);
  std::copy_n(slots_.begin() + std::ptrdiff_t{from} * kPageSlots, kPageSlots,
              slots_.begin() + std::ptrdiff_t{to} * kPageSlots);
}

std::size_t FakeModel::page_bytes() const {
  return kPageSlots * sizeof(std::int32_t) + sizeof(std::uint64_t);
}

PageKind FakeModel::page_kind() {
  PageKind kind;
  kind.model = {options_.identity, 0};
  kind.page_bytes = page_bytes();
  return kind;
}

void FakeModel::write_page(std::byte* host, std::int32_t page) {
  if (on_move) on_move();
  BL_CHECK(pool_.references(page) > 0);
  const auto slots = slots_.begin() + std::ptrdiff_t{page} * kPageSlots;
  const std::uint64_t sum = sum_of({slots, slots + kPageSlots});
  std::memcpy(host, &sum, sizeof sum);
  std::memcpy(host + sizeof sum, &*slots, kPageSlots * sizeof(std::int32_t));
}

void FakeModel::read_page(std::int32_t page, const std::byte* host) {
  if (on_move) on_move();
  BL_CHECK(pool_.references(page) == 1);
  const auto slots = slots_.begin() + std::ptrdiff_t{page} * kPageSlots;
  std::uint64_t sum = 0;
  std::memcpy(&sum, host, sizeof sum);
  std::memcpy(&*slots, host + sizeof sum, kPageSlots * sizeof(std::int32_t));
  BL_CHECK(sum == sum_of({slots, slots + kPageSlots}));
}

}  // namespace bl::test
