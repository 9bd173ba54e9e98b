#include "speculation_flags.h"

#include <algorithm>

#include "base/file.h"
#include "base/nearest_name.h"
#include "engine/draft_policy.h"
#include "engine/hidden_draft.h"
#include "engine/model_draft.h"
#include "engine/ngram_draft.h"
#include "engine/open_model.h"
#include "usage_error.h"

namespace bl {
namespace {

constexpr std::int64_t kMostTokens = 64;
constexpr std::int64_t kMostNgram = 32;
// The value of --draft that means the model's own layers (a folder of that name is ./mtp).
constexpr const char* kOwnLayers = "mtp";
constexpr std::uint64_t kMostTextBytes = 64u << 20;
// Context length of a draft model unless --ctx asks for more; longer texts continue without drafts.
constexpr std::int64_t kUsualContext = 8192;

}  // namespace

std::int64_t SpeculationFlags::count() const {
  if (tokens == "auto") return 0;
  std::int64_t number = 0;
  try {
    parse_value(tokens, number);
  } catch (const Error&) {
    number = 0;
  }
  if (number < 1 || number > kMostTokens) {
    fail_usage("--draft-tokens: '{}' is not auto or in 1 … {}{}", tokens, kMostTokens,
               did_you_mean(tokens, {"auto"}));
  }
  return number;
}

void SpeculationFlags::check() const {
  count();
  if (ngram && !draft.empty()) fail_usage("--draft and --ngram exclude each other; give only one");
  if (!ngram && (ngram_min != 2 || !ngram_text.empty())) {
    fail_usage("{} needs --ngram", ngram_text.empty() ? "--ngram-min" : "--ngram-text");
  }
  if (ngram_min < 1 || ngram_min > kMostNgram) {
    fail_usage("--ngram-min: {} is not in 1 … {}", ngram_min, kMostNgram);
  }
  if (tokens != "auto" && !on()) fail_usage("--draft-tokens needs --draft DIR or --ngram");
}

SpeculationOptions SpeculationFlags::load(const ModelOptions& of_model,
                                          SessionOptions& session) const {
  check();
  if (!on()) return {};
  SpeculationOptions options;
  options.tokens = count();
  session.drafts = options.tokens > 0 ? options.tokens : DraftPolicy::kMost;
  if (ngram) {
    std::string known;
    if (!ngram_text.empty()) known = read_file(ngram_text, kMostTextBytes);
    options.source = std::make_shared<NgramDraft>(ngram_min, std::move(known));
    return options;
  }
  if (draft == kOwnLayers) {
    session.mtp = true;
    options.source = std::make_shared<HiddenDraft>();
    return options;
  }
  const std::shared_ptr<const OpenedModel> found =
      opened ? opened : std::make_shared<OpenedModel>(open_model(draft, session.archs));
  if (is_draft_layers(*found, session.archs)) {
    session.draft_layers = found;
    options.source = std::make_shared<HiddenDraft>();
    return options;
  }
  // Take over the options that concern the machine; all others are the draft's own.
  SessionOptions small;
  small.model = draft;
  small.opened = found;
  small.with_text = session.with_text;
  small.backend = session.backend;
  small.threads = session.threads;
  small.archs = session.archs;
  small.cache = session.cache;
  small.deterministic = session.deterministic;
  small.sequences = session.sequences;
  const std::int64_t wanted = std::max(of_model.context, session.longest);
  small.most_context = wanted > 0 ? wanted : kUsualContext;
  small.pages = session.pages;
  options.source = std::make_shared<ModelDraft>(load_session(small));
  return options;
}

std::string describe_speculation(std::int64_t drafted, std::int64_t accepted) {
  if (drafted == 0) return {};
  return fmt::format("speculation: {} tokens drafted, {} accepted ({:.1f} %)", drafted, accepted,
                     100.0 * static_cast<double>(accepted) / static_cast<double>(drafted));
}

}  // namespace bl
