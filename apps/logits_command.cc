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
  std::string states;

  LogitsOptions() { model.context_default = "the longest prompt"; }
  template <class V>
  void visit(V&& v) {
    v.group("Input and output");
    v(ids, {"--ids", "FILE", "JSON array of token ids, or an array of such arrays (a batch)"});
    v(out, {"-o,--out", "OUT.safetensors", "the file to write", "standard output"});
    v(states,
      {"--states", "LIST", "hidden states: inputs of these blocks, such as 0,5,last", "none"});
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
      fail(ErrorCode::kInvalidFile, "{}: element {} is {}, but should be a token id", what,
           ids.size(), json_text(id));
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

std::string name_of_state(std::int32_t state) {
  return state == StateRows::kNormed ? "last" : std::to_string(state);
}

std::vector<std::int32_t> read_states(const std::string& list) {
  std::vector<std::int32_t> states;
  for (std::size_t begin = 0; begin <= list.size() && !list.empty();) {
    const std::size_t end = std::min(list.find(',', begin), list.size());
    const std::string word = list.substr(begin, end - begin);
    std::int64_t number = StateRows::kNormed;
    if (word != "last") {
      try {
        parse_value(word, number);
      } catch (const Error&) {
        fail_usage("--states: '{}' is neither the number of a block nor 'last'", word);
      }
      if (number < 0 || number > 100'000) fail_usage("--states: there is no block {}", number);
    }
    const auto state = static_cast<std::int32_t>(number);
    if (std::find(states.begin(), states.end(), state) != states.end()) {
      fail_usage("--states: {} is given twice", word);
    }
    states.push_back(state);
    begin = end + 1;
  }
  return states;
}

// Tensors for the requested outputs of every prompt; rows are copied in one by one.
class RowTensors {
 public:
  RowTensors(const Prompts& prompts, std::int64_t width) : prompts_(prompts), width_(width) {}
  void add(const std::string& what) {
    for (std::size_t i = 0; i < prompts_.ids.size(); ++i) {
      const Shape shape{std::ssize(prompts_.ids[i]), width_};
      tensors_.push_back({prompts_.is_batch ? fmt::format("{}_{}", what, i) : what,
                          make_host_tensor(DType::kF32, shape)});
    }
  }
  // `which` is the index of the add() call.
  void set(std::size_t which, std::size_t prompt, std::int64_t position,
           std::span<const float> row) {
    const Tensor& tensor = tensors_[which * prompts_.ids.size() + prompt].tensor;
    std::memcpy(tensor.view().row<float>(position), row.data(), row.size_bytes());
  }
  const std::vector<NamedTensor>& all() const { return tensors_; }

 private:
  const Prompts& prompts_;
  std::int64_t width_;
  std::vector<NamedTensor> tensors_;
};

void logits(LogitsOptions& options) {
  const std::vector<std::int32_t> states = read_states(options.states);

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
  // Without --ctx, a pass may be longer than the model was trained for, as in transformers.
  if (session_options.context == 0) session_options.context = session_options.longest;
  session_options.logits = SessionLogits::kEveryToken;
  session_options.with_text = false;
  const std::unique_ptr<ModelSession> session = load_session(session_options);

  const AdapterMix adapters = options.lora.load(*session);
  RowTensors tensors(prompts, states.empty() ? session->vocab() : session->model().spec().hidden);
  Progress progress(states.empty() ? "logits" : "states", tokens, Progress::Unit::kTokens);
  if (states.empty()) {
    tensors.add("logits");
    compute_logits(*session, prompts.ids, adapters,
                   [&](std::size_t prompt, std::int64_t position, std::span<const float> row) {
                     tensors.set(0, prompt, position, row);
                     progress.advance(1);
                   });
  } else {
    for (const std::int32_t state : states) tensors.add("states_" + name_of_state(state));
    compute_states(*session, {prompts.ids, states}, adapters,
                   [&](std::size_t prompt, std::int64_t position, std::int32_t state,
                       std::span<const float> row) {
                     const auto which = std::find(states.begin(), states.end(), state);
                     tensors.set(static_cast<std::size_t>(which - states.begin()), prompt, position,
                                 row);
                     progress.advance(state == states.back() ? 1 : 0);
                   });
  }
  write_tensors(options.out, tensors.all());
}

}  // namespace

Command logits_command() {
  return make_command<LogitsOptions>(
      {"logits",
       "-m DIR --ids FILE [-o OUT.safetensors]",
       "Run one forward pass over token ids: F32 logits of every position, or hidden states",
       {{"Logits of every position; ids.json holds a list of token ids",
         "bitloom logits -m DIR --ids ids.json -o logits.safetensors"}}},
      logits);
}

}  // namespace bl
