#include "engine/device_rows.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/check.h"
#include "sample/philox.h"

namespace bl {
namespace {

// A recorded step uploads one of these numbers of edits, so that few recordings are needed.
constexpr std::int64_t kEditRooms[] = {0, 512, 8192, SampleLimits::kEdits};

constexpr float kOnlyRepeated = -1;  // LogitEdit::count of tokens that only the prompt has

SampleRule rule_of(const StepItem& item, std::uint64_t position, std::int64_t tokens) {
  const SamplingParams& params = *item.sampling;
  SampleRule rule;
  rule.kind = params.greedy() ? SampleRule::Kind::kLikeliest : SampleRule::Kind::kDraw;
  rule.repetition = 1 + static_cast<float>(params.repetition_penalty - 1);
  rule.presence = static_cast<float>(params.presence_penalty);
  rule.frequency = static_cast<float>(params.frequency_penalty);
  if (params.greedy()) return rule;
  rule.draw = uniform_bits_at(item.seed, position);
  rule.top_p = params.top_p;
  rule.min_p = params.min_p;
  rule.inverse = static_cast<float>(1 / params.temperature);
  rule.top_k = params.top_k < tokens ? static_cast<std::int32_t>(params.top_k) : 0;
  return rule;
}

std::int64_t rows_of(const StepItem& item) {
  if (item.logits == LogitRows::kNone) return 0;
  return item.logits == LogitRows::kLast ? 1 : item.count;
}

// An array as 32-bit words, the unit in which backends copy.
template <class T>
TensorView words_of(std::vector<T>& values) {
  const auto words = static_cast<std::int64_t>(values.size() * sizeof(T) / 4);
  return view_of(values.data(), DType::kI32, {words});
}

}  // namespace

void DeviceRows::collect(std::span<const StepItem> items, const OpTable& ops, Width width) {
  rules_.clear();
  edits_.clear();
  reports_ = false;
  needs_logits_ = false;
  hosted_ = 0;
  BL_CHECK(width.tokens <= width.vocab);
  width_ = width;
  way_ = Way::kNone;
  std::int64_t rows = 0;
  bool all_likeliest = true;
  bool any = false;
  for (const StepItem& item : items) {
    if (item.logits == LogitRows::kNone) continue;
    rows += rows_of(item);
    any = any || item.sampling != nullptr;
    all_likeliest = all_likeliest && item.sampling != nullptr && !item.log_probabilities &&
                    item.sampling->greedy() && !edits_logits(*item.sampling);
  }
  if (!any) return;
  if (all_likeliest && ops.argmax != nullptr) {
    way_ = Way::kLikeliest;
    return;
  }
  if (ops.sample == nullptr || rows > SampleLimits::kRows || width.vocab > SampleLimits::kVocab)
    return;
  way_ = Way::kSample;
  for (const StepItem& item : items) add_rows(item);
  edits_.resize(static_cast<std::size_t>(edit_room()));
  find_hosted();
}

void DeviceRows::find_hosted() {
  const auto is_hosts = [](const SampleRule& rule) { return rule.kind == SampleRule::Kind::kNone; };
  const auto first = std::find_if(rules_.begin(), rules_.end(), is_hosts);
  const std::int64_t count = rules_.end() - first;
  const auto room = static_cast<std::int64_t>(fetched_logits_.size()) / width_.vocab;
  needs_logits_ = count > room || !std::all_of(first, rules_.end(), is_hosts);
  hosted_ = needs_logits_ ? 0 : count;
}

void DeviceRows::add_rows(const StepItem& item) {
  const Sequence& sequence = *item.sequence;
  const std::int64_t end = sequence.cached + item.count;
  for (std::int64_t token = end - rows_of(item); token < end; ++token) {
    SampleRule& rule = rules_.emplace_back();
    if (item.sampling == nullptr) continue;
    const auto place = static_cast<std::size_t>(token) + 1;
    const auto history = std::span(sequence.ids).first(std::min(place, sequence.ids.size()));
    BL_CHECK(history.size() == place || !needs_history(*item.sampling));
    rule = rule_of(item, place, width_.tokens);
    rule.log_probability = item.log_probabilities ? 1 : 0;
    reports_ = reports_ || item.log_probabilities;
    if (!add_edits(item, history, rule)) rule = {};
  }
}

// Adds an edit for each token that a penalty applies to, by id.
void DeviceRows::add_counts(const StepItem& item, std::span<const std::int32_t> history) {
  const SamplingParams& params = *item.sampling;
  PenaltyCounts& counts = item.counts != nullptr ? *item.counts : counts_;
  const auto add = [&](const TokenCounts::Count& one, float count) {
    if (one.id >= 0 && one.id < width_.tokens) edits_.push_back({.id = one.id, .count = count});
  };
  const auto generated =
      std::max<std::int64_t>(static_cast<std::int64_t>(history.size()) - item.prompt, 0);
  const std::int64_t in_answer =
      params.penalty_range < 0 ? generated : std::min(generated, params.penalty_range);
  if (params.penalize_prompt || params.repetition_penalty == 1) {
    const std::int64_t range = params.penalize_prompt ? params.penalty_range : in_answer;
    for (const auto& one : counts.text.of(history, range)) add(one, static_cast<float>(one.count));
    return;
  }
  const std::span<const TokenCounts::Count> own = counts.answer.of(history, in_answer);
  auto next = own.begin();
  for (const TokenCounts::Count& one : counts.text.of(history, params.penalty_range)) {
    const bool is_own = next != own.end() && next->id == one.id;
    add(one, is_own ? static_cast<float>((next++)->count) : kOnlyRepeated);
  }
}

// Adds the row's edits of logits. False, and nothing is added, where there is no room for them;
// then the host has to choose the row's token.
bool DeviceRows::add_edits(const StepItem& item, std::span<const std::int32_t> history,
                           SampleRule& rule) {
  const SamplingParams& params = *item.sampling;
  const std::size_t begin = edits_.size();
  if (needs_history(params)) add_counts(item, history);
  if (!params.logit_bias.empty() || !params.banned_tokens.empty() || params.ban_end_tokens) {
    add_biases(item, begin);
  }
  if (static_cast<std::int64_t>(edits_.size()) > SampleLimits::kEdits) {
    edits_.resize(begin);
    return false;
  }
  rule.first_edit = static_cast<std::int32_t>(begin);
  rule.edits = static_cast<std::int32_t>(edits_.size() - begin);
  return true;
}

// Adds biases and bans to the row's edits, which begin at `begin`, so that each token has one edit.
void DeviceRows::add_biases(const StepItem& item, std::size_t begin) {
  const SamplingParams& params = *item.sampling;
  edit_at_.resize(static_cast<std::size_t>(width_.tokens), 0);
  for (std::size_t i = begin; i < edits_.size(); ++i) {
    edit_at_[static_cast<std::size_t>(edits_[i].id)] = static_cast<std::int32_t>(i) + 1;
  }
  const auto bias = [&](std::int32_t id, float value) {
    const auto at = static_cast<std::size_t>(id);
    if (id < 0 || at >= edit_at_.size()) return;
    if (edit_at_[at] == 0) {
      edits_.push_back({.id = id});
      edit_at_[at] = static_cast<std::int32_t>(edits_.size());
    }
    edits_[static_cast<std::size_t>(edit_at_[at]) - 1].bias = value;
  };
  for (const TokenBias& entry : params.logit_bias) bias(entry.id, static_cast<float>(entry.bias));
  constexpr float kNever = -std::numeric_limits<float>::infinity();
  for (const std::int32_t id : params.banned_tokens) bias(id, kNever);
  if (params.ban_end_tokens) {
    for (const std::int32_t id : item.end_tokens) bias(id, kNever);
  }
  for (std::size_t i = begin; i < edits_.size(); ++i) {
    edit_at_[static_cast<std::size_t>(edits_[i].id)] = 0;
  }
}

std::int64_t DeviceRows::edit_room() const {
  const auto count = static_cast<std::int64_t>(edits_.size());
  return *std::lower_bound(std::begin(kEditRooms), std::end(kEditRooms), count);
}

std::uint64_t DeviceRows::key() const {
  return static_cast<std::uint64_t>(way_) | (reports_ ? 4u : 0u) |
         static_cast<std::uint64_t>(edits_.size()) << 3 | static_cast<std::uint64_t>(hosted_) << 40;
}

const std::int32_t* DeviceRows::place(ExecContext& ctx, std::int64_t rows) {
  results_ = ctx.scratch->take(DType::kI32, {2, rows});
  return results_.row<std::int32_t>(0);
}

void DeviceRows::enqueue(ExecContext& ctx, Backend& backend, const TensorView& logits) {
  choose(ctx, backend, logits);
  const CopyPiece piece{fetched_.data(), results_.data, fetched_bytes()};
  BL_CHECK(fetched_.size_bytes() >= piece.bytes);
  backend.copy_pieces({&piece, 1});
  if (hosted_ == 0) return;
  BL_CHECK(logits.row_stride == width_.vocab);
  const CopyPiece rows{fetched_logits_.data(), logits.row<float>(logits.rows() - hosted_),
                       static_cast<std::size_t>(hosted_ * width_.vocab) * sizeof(float)};
  backend.copy_pieces({&rows, 1});
}

std::size_t DeviceRows::fetched_bytes() const {
  return static_cast<std::size_t>((reports_ ? 2 : 1) * results_.shape[1]) * sizeof(std::int32_t);
}

void DeviceRows::choose(ExecContext& ctx, Backend& backend, const TensorView& whole) {
  const TensorView logits = slice_columns(whole, 0, width_.tokens);
  const std::int64_t rows = logits.rows();
  if (way_ == Way::kLikeliest) {
    ctx.ops->argmax(ctx, {.logits = logits, .out = results_.row<std::int32_t>(0)});
    return;
  }
  BL_CHECK(static_cast<std::int64_t>(rules_.size()) == rows);
  const auto put = [&](auto& values) {
    const TensorView host = words_of(values);
    const TensorView there = ctx.scratch->take(DType::kI32, host.shape);
    backend.upload(there, host);
    return there;
  };
  const TensorView rules = put(rules_);
  const TensorView edits = edits_.empty() ? TensorView() : put(edits_);
  ctx.ops->sample(ctx, {.logits = logits,
                        .rules = rules.as<const SampleRule>(),
                        .edits = edits.as<const LogitEdit>(),
                        .max_edits = static_cast<std::int64_t>(edits_.size()),
                        .ids = results_.row<std::int32_t>(0),
                        .log_probabilities = results_.row<float>(1)});
}

void DeviceRows::read(StepOutput& output) {
  const auto rows = static_cast<std::size_t>(results_.shape[1]);
  output.ids = fetched_.first(rows);
  if (hosted_ > 0) {
    output.logits = {view_of(fetched_logits_.data(), DType::kF32, {hosted_, width_.vocab}),
                     results_.shape[1] - hosted_};
  }
  if (!reports_) return;
  log_probabilities_.clear();
  for (std::size_t i = 0; i < rows; ++i) {
    log_probabilities_.push_back(std::bit_cast<float>(fetched_[rows + i]));
  }
  output.log_probabilities = log_probabilities_;
}

}  // namespace bl
