#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>

#include "base/file.h"
#include "base/json.h"
#include "base/progress.h"
#include "cache/kv_cache.h"
#include "command.h"
#include "engine/batch_logits.h"
#include "lora_options.h"
#include "model_options.h"
#include "tensor_output.h"
#include "usage_error.h"

namespace bl {
namespace {

struct LogitsOptions {
  ModelOptions model;
  LoraOptions lora;
  std::string ids;
  std::string out;

  LogitsOptions() { model.context_default = "the longest prompt"; }
  template <class V>
  void visit(V&& v) {
    v.group("Input and output");
    v(ids, {"--ids", "FILE", "JSON array of token ids, or an array of such arrays (a batch)"});
    v(out, {"-o,--out", "OUT.safetensors", "where the logits go", "standard output"});
    model.visit(v);
    lora.visit(v);
  }
};

struct Prompts {
  std::vector<std::vector<std::int32_t>> ids;
  bool is_batch = false;
};

std::vector<std::int32_t> read_ids(const Json& list, const std::string& what) {
  if (!list.is_array() || list.empty()) {
    fail(ErrorCode::kInvalidFile, "{}: should be a JSON array of at least one token id", what);
  }
  std::vector<std::int32_t> ids;
  for (const Json& id : list) {
    if (!id.is_number_integer() || id < 0 || id > INT32_MAX) {
      fail(ErrorCode::kInvalidFile, "{}: element {} is {}, should be a token id", what, ids.size(),
           json_text(id));
    }
    ids.push_back(id.get<std::int32_t>());
  }
  return ids;
}

Prompts read_prompts(const std::string& path) {
  const Json document = read_json_file(path);
  Prompts prompts;
  prompts.is_batch = document.is_array() && !document.empty() && document[0].is_array();
  if (!prompts.is_batch) {
    prompts.ids.push_back(read_ids(document, path));
    return prompts;
  }
  for (const Json& list : document) {
    prompts.ids.push_back(read_ids(list, fmt::format("{}: prompt {}", path, prompts.ids.size())));
  }
  return prompts;
}

void logits(LogitsOptions& options) {
  SessionOptions session_options = options.model.session_options();
  options.lora.plan(session_options);
  if (options.ids.empty()) fail_usage("--ids FILE is missing: the token ids");
  check_output(options.out);
  const Prompts prompts = read_prompts(options.ids);
  std::int64_t tokens = 0;
  for (const auto& ids : prompts.ids) {
    const auto length = static_cast<std::int64_t>(ids.size());
    tokens += length;
    session_options.longest = std::max(session_options.longest, length);
    session_options.pages += KvCache::pages_for(length);
  }
  // Without --ctx a forward pass may be longer than the model was trained for, as in transformers.
  if (session_options.context == 0) session_options.context = session_options.longest;
  session_options.logits = SessionLogits::kEveryToken;
  session_options.with_text = false;
  const std::unique_ptr<ModelSession> session = load_session(session_options);

  std::vector<NamedTensor> tensors;
  for (std::size_t i = 0; i < prompts.ids.size(); ++i) {
    const Shape shape{static_cast<std::int64_t>(prompts.ids[i].size()), session->vocab()};
    tensors.push_back({prompts.is_batch ? fmt::format("logits_{}", i) : "logits",
                       make_host_tensor(DType::kF32, shape)});
  }
  Progress progress("logits", tokens, Progress::Unit::kTokens);
  compute_logits(*session, prompts.ids, options.lora.load(*session),
                 [&](std::size_t prompt, std::int64_t position, std::span<const float> row) {
                   std::memcpy(tensors[prompt].tensor.view().row<float>(position), row.data(),
                               row.size_bytes());
                   progress.advance(1);
                 });
  write_tensors(options.out, tensors);
}

}  // namespace

Command logits_command() {
  return make_command<LogitsOptions>(
      {"logits", "-m DIR --ids FILE [-o OUT.safetensors]",
       "One forward pass over token ids: F32 logits of every position"},
      logits);
}

}  // namespace bl
