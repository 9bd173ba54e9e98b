#include "textbook.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string_view>

namespace bl::test {
namespace {

constexpr double kBarred = -std::numeric_limits<double>::infinity();
constexpr double kDoubt = 2e-6;

struct Item {
  std::int32_t id;
  double log_weight;
  double p;
};

struct Book {
  const TextbookRow& row;
  const SamplingParams& params;
  const SamplerState& state;
  std::vector<Item> items{};  // likeliest first, ties by id
  std::vector<double> unaimed{};
  bool doubtful = false;

  void sort_items() {
    std::sort(items.begin(), items.end(), [](const Item& a, const Item& b) {
      return a.log_weight != b.log_weight ? a.log_weight > b.log_weight : a.id < b.id;
    });
  }
  void normalize() {
    double best = kBarred;
    for (const Item& item : items) best = std::max(best, item.log_weight);
    double total = 0;
    for (Item& item : items) total += item.p = std::exp(item.log_weight - best);
    for (Item& item : items) item.p /= total;
  }
  void keep_first(std::size_t count) {
    items.resize(std::min(items.size(), count));
    normalize();
  }
  void doubt(double a, double b, double scale) {
    if (std::abs(a - b) < kDoubt * scale) doubtful = true;
  }
  double entropy() const {
    double h = 0;
    for (const Item& item : items) h -= item.p > 0 ? item.p * std::log(item.p) : 0;
    return h;
  }
  // How many of the items it takes to reach `wanted`.
  std::size_t reach(double wanted) {
    double sum = 0;
    std::size_t count = 0;
    while (count < items.size() && sum < wanted) {
      doubt(sum, wanted, 1);
      sum += items[count++].p;
    }
    if (count < items.size()) doubt(sum, wanted, 1);
    return std::max<std::size_t>(count, 1);
  }
  // Whether the item behind the first `count` might as well be among them. Scores that stages have
  // changed differ by their rounding.
  void doubt_border(std::size_t count) {
    if (count == 0 || count >= items.size()) return;
    const double in = items[count - 1].log_weight;
    const double out = items[count].log_weight;
    if (in != out) doubt(in, out, std::max(10.0, std::abs(in)));
  }
  void keep_from(double bar) {
    std::size_t count = 0;
    for (const Item& item : items) {
      if (item.p != items[0].p) doubt(item.p, bar, bar);
      count += item.p >= bar * (1 - 1e-12) ? 1 : 0;
    }
    keep_first(std::max<std::size_t>(count, 1));
  }
};

double strength(const SamplingParams& p, std::size_t distance, std::size_t size) {
  const double full =
      p.penalty_range < 0 ? static_cast<double>(size) : static_cast<double>(p.penalty_range);
  const auto d = static_cast<double>(distance);
  const auto decay = static_cast<double>(p.repetition_decay);
  if (d < full) return 1;
  return std::max(0.0, (full + decay - d) / (decay + 1));
}

void penalize(const Book& book, std::vector<double>& logits) {
  const SamplingParams& p = book.params;
  const std::vector<std::int32_t>& history = book.row.history;
  for (std::size_t id = 0; id < logits.size(); ++id) {
    double newest = 0;
    double newest_counted = 0;
    double sum = 0;
    for (std::size_t d = 0; d < history.size(); ++d) {
      if (history[history.size() - 1 - d] != static_cast<std::int32_t>(id)) continue;
      const double s = strength(p, d, history.size());
      newest = std::max(newest, s);
      if (!p.penalize_prompt && static_cast<std::int64_t>(d) >= book.row.generated) continue;
      newest_counted = std::max(newest_counted, s);
      sum += s;
    }
    const double r = 1 + (p.repetition_penalty - 1) * newest;
    logits[id] = logits[id] > 0 ? logits[id] / r : logits[id] * r;
    logits[id] -= p.presence_penalty * newest_counted;
    logits[id] -= p.frequency_penalty * sum;
  }
}

// Straight from the description: every earlier end, compared token by token.
void dry(const Book& book, std::vector<double>& logits) {
  const SamplingParams& p = book.params;
  if (p.dry_multiplier == 0) return;
  std::vector<std::int32_t> text = book.row.history;
  if (p.dry_range > 0 && text.size() > static_cast<std::size_t>(p.dry_range)) {
    text.erase(text.begin(), text.end() - p.dry_range);
  }
  const std::set<std::int32_t> breakers(p.dry_breaker_tokens.begin(), p.dry_breaker_tokens.end());
  std::map<std::int32_t, std::int64_t> longest;
  for (std::size_t next = 1; next < text.size(); ++next) {
    std::int64_t length = 0;
    for (std::size_t back = 1; back <= next; ++back) {
      const std::int32_t earlier = text[next - back];
      if (earlier != text[text.size() - back] || breakers.count(earlier) > 0) break;
      ++length;
    }
    if (breakers.count(text[next]) == 0) {
      longest[text[next]] = std::max(longest[text[next]], length);
    }
  }
  for (const auto& [id, length] : longest) {
    if (length < p.dry_allowed_length || id < 0 || id >= static_cast<int>(logits.size())) continue;
    const auto over = static_cast<double>(length - p.dry_allowed_length);
    logits[static_cast<std::size_t>(id)] -=
        std::min(1e6, p.dry_multiplier * std::pow(p.dry_base, over));
  }
}

void bar(const Book& book, std::vector<double>& logits) {
  const SamplingParams& p = book.params;
  const TextbookRow& row = book.row;
  const auto holds = [](const std::vector<std::int32_t>& ids, std::size_t id) {
    return std::find(ids.begin(), ids.end(), static_cast<std::int32_t>(id)) != ids.end();
  };
  for (std::size_t id = 0; id < logits.size(); ++id) {
    const bool too_short = row.generated < p.min_tokens;
    bool out = holds(p.banned_tokens, id) || holds(row.barred, id);
    out = out || (!p.allowed_tokens.empty() && !holds(p.allowed_tokens, id));
    out = out || ((too_short || p.ban_end_tokens) && holds(row.end_tokens, id));
    out = out || (too_short && holds(p.stop_tokens, id));
    if (!row.mask.empty()) {
      out = out || id / 32 >= row.mask.size() || (row.mask[id / 32] >> (id % 32) & 1) == 0;
    }
    if (out) logits[id] = kBarred;
  }
}

double sigma_floor(Book& book, const std::vector<double>& logits) {
  double count = 0, mean = 0, squares = 0;
  for (const float x : book.row.logits) {
    if (std::isinf(x)) continue;
    ++count;
    mean += static_cast<double>(x);
  }
  mean /= count;
  for (const float x : book.row.logits) {
    if (!std::isinf(x)) squares += std::pow(static_cast<double>(x) - mean, 2);
  }
  const double best = *std::max_element(logits.begin(), logits.end());
  const double width = book.params.top_n_sigma * std::sqrt(squares / count);
  for (const double x : logits) {
    if (x != best) book.doubt(x, best - width, 10);
  }
  return best - width;
}

double smooth(const SamplingParams& p, double x) {
  const double k = (3 - p.smoothing_curve) / 2;
  const double s = (p.smoothing_curve - 1) / 2;
  return -k * p.smoothing_factor * x * x + s * p.smoothing_factor * x * x * x;
}

// Logits → sorted, normalised items at the first temperature, and top-k.
void make_items(Book& book, const std::vector<double>& logits) {
  const SamplingParams& p = book.params;
  const double best = *std::max_element(logits.begin(), logits.end());
  const double floor = p.top_n_sigma > 0 ? sigma_floor(book, logits) : kBarred;
  const bool ordered = !p.sampler_order.empty();  // then these come in their turn
  const bool last = ordered || p.temperature_last || p.max_temp > p.min_temp;
  const double t = last ? 1 : p.temperature;
  std::vector<std::size_t> order;
  for (std::size_t id = 0; id < logits.size(); ++id) {
    if (logits[id] != kBarred && (logits[id] >= floor || logits[id] == best)) order.push_back(id);
  }
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  if (!ordered && p.top_k > 0 && order.size() > static_cast<std::size_t>(p.top_k)) {
    const auto k = static_cast<std::size_t>(p.top_k);
    const double in = logits[order[k - 1]];
    const double out = logits[order[k]];
    if (in != out) book.doubt(in, out, 10);
    order.resize(k);
  }
  for (const std::size_t id : order) {
    const double x = logits[id] - best;
    const double score = !ordered && p.smoothing_factor > 0 ? smooth(p, x) : x;
    book.items.push_back({static_cast<std::int32_t>(id), score / t, 0});
  }
  book.normalize();
}

void tail_free(Book& book) {
  std::vector<Item>& items = book.items;
  if (items.size() < 3) return;
  std::vector<double> slopes, bends;
  for (std::size_t i = 0; i + 1 < items.size(); ++i) slopes.push_back(items[i].p - items[i + 1].p);
  double total = 0;
  for (std::size_t i = 0; i + 1 < slopes.size(); ++i) {
    bends.push_back(std::abs(slopes[i] - slopes[i + 1]));
    total += bends.back();
  }
  // Rounding of weights makes bends of 1e-7 each.
  const double noise = 2e-7 * static_cast<double>(items.size()) * items[0].p;
  if (total < 1e-14) return;
  double cumulative = 0;
  std::size_t count = 0;
  while (count < bends.size()) {
    cumulative += bends[count] / total;
    if (std::abs(cumulative - book.params.tfs) < kDoubt + noise / total) book.doubtful = true;
    if (cumulative > book.params.tfs) break;
    ++count;
  }
  if (!book.params.sampler_order.empty()) book.doubt_border(count + 1);
  book.keep_first(count + 1);
}

void typical(Book& book) {
  const double h = book.entropy();
  const auto distance = [&](const Item& item) { return std::abs(-std::log(item.p) - h); };
  std::vector<Item>& items = book.items;
  std::sort(items.begin(), items.end(), [&](const Item& a, const Item& b) {
    const double da = distance(a), db = distance(b);
    return da != db ? da < db : a.id < b.id;
  });
  const std::size_t count = book.reach(book.params.typical);
  if (count < items.size()) {
    const double in = distance(items[count - 1]), out = distance(items[count]);
    if (items[count - 1].p != items[count].p) book.doubt(in, out, 10);
  }
  items.resize(count);
  book.sort_items();
  book.normalize();
}

void last_temperature(Book& book) {
  const SamplingParams& p = book.params;
  double t = p.temperature;
  if (p.max_temp > p.min_temp) {
    const double largest = std::log(static_cast<double>(book.items.size()));
    const double share = largest > 0 ? book.entropy() / largest : 0;
    t = p.min_temp + (p.max_temp - p.min_temp) * std::pow(std::min(share, 1.0), p.temp_exponent);
  } else if (!p.temperature_last && p.sampler_order.empty()) {
    return;
  }
  for (Item& item : book.items) item.log_weight /= std::max(t, 1e-3);
  book.normalize();
}

void exclude_top(Book& book) {
  const SamplingParams& p = book.params;
  std::vector<std::size_t> top;
  for (std::size_t i = 0; i < book.items.size(); ++i) {
    const Item& item = book.items[i];
    book.doubt(item.p, p.xtc_threshold, std::max(p.xtc_threshold, 1e-3));
    const auto& spared = p.xtc_ignore_tokens;
    if (std::find(spared.begin(), spared.end(), item.id) != spared.end()) continue;
    if (item.p >= p.xtc_threshold) top.push_back(i);
  }
  if (top.size() < 2) return;
  top.pop_back();  // items are sorted: the least likely stays
  double m = 0;
  for (const std::size_t i : top) m += book.items[i].p;
  const double chance = p.xtc_probability;
  std::vector<double> factors(book.items.size(), 1 + chance * m / (1 - m));
  for (const std::size_t i : top) factors[i] = 1 - chance;
  std::vector<Item> left;
  for (std::size_t i = 0; i < book.items.size(); ++i) {
    if (factors[i] == 0) continue;
    left.push_back(book.items[i]);
    left.back().log_weight += std::log(factors[i]);
  }
  book.items = left;
  book.sort_items();
  book.normalize();
}

void skew(Book& book) {
  const double exponent = std::exp(book.params.skew);
  double cumulative = 0;
  double before = 0;
  for (Item& item : book.items) {
    cumulative += item.p;
    const double after = std::pow(std::min(cumulative, 1.0), exponent);
    item.p = after - before;
    before = after;
  }
}

void adapt(Book& book) {
  const double mean = book.state.adaptive_sum / book.state.adaptive_weight;
  const double aim = std::clamp(2 * book.params.adaptive_target - mean, 0.0, 1.0);
  book.unaimed.assign(book.row.logits.size(), 0.0);
  for (Item& item : book.items) {
    book.unaimed[static_cast<std::size_t>(item.id)] = item.p;
    const double d = std::abs(item.p - aim) / 0.3;
    item.log_weight = 5 - 10 * d * d / (d + 1);
  }
  book.normalize();
}

// The stage of this name on items in any state.
void apply_named(Book& book, std::string_view name) {
  const SamplingParams& p = book.params;
  const auto keep_first = [&](std::size_t count) {
    book.doubt_border(count);
    book.keep_first(count);
  };
  if (name == "smoothing" && p.smoothing_factor > 0) {
    const double best = book.items[0].log_weight;
    for (Item& item : book.items) item.log_weight = smooth(p, item.log_weight - best);
  }
  if (name == "temperature") last_temperature(book);
  if (name == "top-k" && p.top_k > 0) keep_first(static_cast<std::size_t>(p.top_k));
  if (name == "top-p" && p.top_p < 1) keep_first(book.reach(p.top_p));
  if (name == "top-a" && p.top_a > 0) book.keep_from(p.top_a * book.items[0].p * book.items[0].p);
  if (name == "min-p" && p.min_p > 0) book.keep_from(p.min_p * book.items[0].p);
  if (name == "tail-free" && p.tfs > 0 && p.tfs < 1) tail_free(book);
  if (name == "typical" && p.typical > 0 && p.typical < 1) typical(book);
  if (name == "mirostat" && p.mirostat_mode == 2) {
    book.keep_from(std::pow(2, -book.state.mirostat_mu));
  }
  if (name == "xtc" && p.xtc_probability > 0) exclude_top(book);
  if (name == "skew" && p.skew != 0) {
    // Which of two comes first changes both, and behind adaptive-p many are all but equal.
    const bool adapted = p.adaptive_target < 1;
    for (std::size_t i = 1; adapted && i < book.items.size(); ++i) book.doubt_border(i);
    skew(book);
    for (Item& item : book.items) {
      // A difference of sums near 1, of which a float's exponent is all that is left.
      if (item.p < 1e-9) book.doubtful = true;
      item.log_weight = std::log(item.p);
    }
  }
  if (name == "adaptive-p" && p.adaptive_target < 1) adapt(book);
  book.sort_items();
  book.normalize();
}

}  // namespace

PickArgs TextbookRow::args() const {
  return {.logits = logits,
          .history = history,
          .position = position,
          .generated = generated,
          .end_tokens = end_tokens,
          .barred = barred,
          .mask = mask};
}

TextbookResult textbook(const TextbookRow& row, const SamplingParams& p,
                        const SamplerState& state) {
  Book book{.row = row, .params = p, .state = state};
  std::vector<double> logits(row.logits.begin(), row.logits.end());
  penalize(book, logits);
  for (const TokenBias& entry : p.logit_bias) {
    logits[static_cast<std::size_t>(entry.id)] += entry.bias;
  }
  dry(book, logits);
  bar(book, logits);
  TextbookResult result{.p = std::vector<double>(row.logits.size(), 0.0), .unaimed = {}};
  if (p.temperature < 1e-3 || (p.sampler_order.empty() && (p.top_k == 1 || p.top_p == 0))) {
    const auto best = std::max_element(logits.begin(), logits.end());
    for (const double x : logits) {
      if (x != *best) book.doubt(x, *best, 10);
    }
    result.p[static_cast<std::size_t>(best - logits.begin())] = 1;
    result.doubtful = book.doubtful;
    return result;
  }
  make_items(book, logits);
  if (!p.sampler_order.empty()) {
    for (const std::string& name : p.sampler_order) apply_named(book, name);
    for (const Item& item : book.items) result.p[static_cast<std::size_t>(item.id)] = item.p;
    result.unaimed = std::move(book.unaimed);
    result.doubtful = book.doubtful;
    return result;
  }
  if (p.top_p < 1) book.keep_first(book.reach(p.top_p));
  if (p.top_a > 0) book.keep_from(p.top_a * book.items[0].p * book.items[0].p);
  if (p.min_p > 0) book.keep_from(p.min_p * book.items[0].p);
  if (p.tfs > 0 && p.tfs < 1) tail_free(book);
  if (p.typical > 0 && p.typical < 1) typical(book);
  if (p.mirostat_mode == 2) book.keep_from(std::pow(2, -state.mirostat_mu));
  last_temperature(book);
  if (p.xtc_probability > 0) exclude_top(book);
  if (p.skew != 0) skew(book);
  if (p.adaptive_target < 1) adapt(book);
  for (const Item& item : book.items) result.p[static_cast<std::size_t>(item.id)] = item.p;
  result.unaimed = std::move(book.unaimed);
  result.doubtful = book.doubtful;
  return result;
}

std::int32_t textbook_draw(const TextbookResult& result, double u, bool& doubtful) {
  doubtful = result.doubtful;
  double cumulative = 0;
  std::int32_t last = -1;
  for (std::size_t id = 0; id < result.p.size(); ++id) {
    if (result.p[id] == 0) continue;
    if (std::abs(cumulative - u) < kDoubt && last >= 0) doubtful = true;
    last = static_cast<std::int32_t>(id);
    cumulative += result.p[id];
    if (cumulative > u) {
      if (std::abs(cumulative - u) < kDoubt) doubtful = true;
      return last;
    }
  }
  return last;
}

}  // namespace bl::test
