#include "calling_model.h"

#include <utility>

#include "../engine/tiny_model.h"
#include "base/file.h"
#include "base/json.h"

namespace bl::test {
namespace {

constexpr const char* kTemplate =
    "{{ bos_token }}{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}"
    "{% if m.role == 'assistant' %}<|bot|>"
    "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}"
    "{{ m.content or '' }}{% for c in m.tool_calls or [] %}"
    "<tool_call>\n{\"name\": \"{{ c.function.name }}\", "
    "\"arguments\": {{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}</s>"
    "{% else %}<|user|>{{ m.role }}: {{ m.content }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|bot|>{% endif %}";
constexpr int kContext = 1 << 15;
constexpr std::int32_t kEnd = 257;

void change(const std::filesystem::path& file, const char* key, const Json& value) {
  Json document = read_json_file(file);
  document[key] = value;
  write_file_atomically(file, document.dump());
}

std::shared_ptr<server::ServedModel> make_model(const char* folder, std::vector<TokenBias> bias) {
  SessionOptions session;
  session.model = make_tiny_model(folder);
  change(session.model / "config.json", "max_position_embeddings", kContext);
  change(session.model / "tokenizer_config.json", "chat_template", kTemplate);
  session.backend = "cpu";
  session.threads = 1;
  session.sequences = 2;
  server::ServedModel::Args args;
  args.engine = std::make_unique<Engine>(ModelSession::load(session));
  args.names = {"smollm2"};
  args.sampling = args.engine->session().defaults().request;
  args.sampling.max_tokens = 200;
  args.sampling.logit_bias = std::move(bias);
  return std::make_shared<server::ServedModel>(std::move(args));
}

}  // namespace

std::shared_ptr<server::ServedModel> make_calling_model(const char* folder) {
  return make_model(folder, {{kEnd, 2.0}});
}

std::shared_ptr<server::ServedModel> make_terse_calling_model(const char* folder) {
  // Before reasoning stands the marker <think>. Calls and JSON have another choice at its first
  // byte or at its third.
  return make_model(folder, {{kEnd, 2.0}, {'<', -100}, {'h', -100}, {'"', 4.0}});
}

}  // namespace bl::test
