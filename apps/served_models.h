#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "constraint_options.h"
#include "lora_options.h"
#include "model_options.h"
#include "preset_option.h"
#include "random_model_flags.h"
#include "server/api_server.h"
#include "speculation_flags.h"

namespace bl {

// The options of `serve` that say which models there are and how they are loaded.
struct ServedModels {
  std::vector<std::string> aliases;
  std::int64_t parallel = 4;
  bool special_tokens_in_messages = false;
  bool embeddings = false;
  bool reranking = false;
  std::string pooling;
  std::string folder;
  ByteSize memory;
  std::int64_t idle_minutes = 0;
  std::string adapters;
  std::string templates;
  std::string presets;
  std::optional<std::int64_t> max_tokens;
  std::optional<double> temperature;
  std::optional<std::uint64_t> seed;
  std::string chat_template;
  std::string template_variables;
  std::string reasoning = "auto";
  std::string reasoning_format = "deepseek";
  bool prefill_assistant = false;
  bool verbose_answers = false;
  ModelOptions model;
  SpeculationFlags speculation;
  LoraOptions lora;
  ConstraintOptions constraint;
  PresetOption preset;
  RandomModelFlags random;
  std::string tokenizer;

  template <class V>
  void visit(V&& v) {
    v.group("Models");
    v(aliases, {"--alias", "NAME",
                "the model's name in requests and answers; the first is shown, '*' answers to "
                "every name",
                "the folder's name"});
    v(parallel, {"--parallel", "N", "requests computed at once; others wait"});
    v(special_tokens_in_messages,
      {"--special-tokens-in-messages", "",
       "special tokens that the text of messages spells become tokens; whoever writes a message "
       "may then end it and begin others"});
    v(embeddings, {"--embeddings", "", "only embed texts, and refuse to generate any"});
    v(reranking, {"--reranking", "",
                  "answer requests to rerank documents by how similar their embeddings are to the "
                  "query's"});
    v(pooling, {"--pooling", "KIND", "hidden states that become an embedding: mean, cls or last",
                "as the model's files say, else last"});
    v.group("Several models");
    v(folder, {"--models", "DIR", "folder of models that requests load by name", "none"});
    v(memory, {"--models-memory", "SIZE", "memory for all models together, such as 24GiB",
               "what is free at the start"});
    v(idle_minutes, {"--idle-unload", "MINUTES",
                     "unload a model of --models that nobody has used for so long; 0: never"});
    v(adapters, {"--loras", "DIR", "folder of adapters that an administrator may load", "none"});
    v(templates,
      {"--templates", "DIR", "folder of chat templates that an administrator may use", "none"});
    v(presets, {"--presets", "DIR", "folder of presets that an administrator may use", "built in"});
    v.group("Requests that leave something open");
    v(max_tokens, {"-n,--max-tokens", "N", "tokens of an answer", "to the end of the context"});
    v(temperature, {"--temperature", "X", "sampling temperature", "what the model's authors say"});
    v(seed, {"--seed", "N", "seed of the random draws", "another one for each request"});
    v(chat_template, {"--chat-template-file,--template", "FILE",
                      "a Jinja template to use instead of the model's"});
    v(template_variables, {"--template-vars", "JSON",
                           "variables for the template, such as '{\"thinking\": true}'", "none"});
    v(reasoning,
      {"--reasoning", "on|off|auto", "think before answering, if the template has a switch"});
    v(reasoning_format, {"--reasoning-format", "NAME",
                         "deepseek: reasoning is apart from content; none: it stays in the "
                         "content"});
    v(prefill_assistant, {"--prefill-assistant", "",
                          "an answer goes on with the last message where that is an assistant's"});
    v(verbose_answers,
      {"--verbose-answers", "", "answers to chats tell the prompt, to debug templates"});
    preset.visit(v);
    constraint.visit(v);
    speculation.visit(v);
    model.visit(v);
    lora.visit(v);
    random.visit(v);
    v(tokenizer, {"--tokenizer", "DIR", "folder with the tokenizer of a random model"});
  }

  // Checks everything that needs no model. Throws UsageError, and Error for a folder that does not
  // exist.
  void check() const;
  server::ModelOptions registry() const;
  server::FolderPaths folders() const;
  // Loads the model of -m, if there is one, into the server.
  void load_first(server::ServerState& state) const;

 private:
  // Whether it is the model that the options name.
  bool is_first_model(const std::filesystem::path& path) const;
  std::shared_ptr<const OpenedModel> random_model() const;
  std::shared_ptr<server::ServedModel> load(const server::LoadOrder& order, bool is_first) const;
  // The sampling parameters for what a request leaves open.
  SamplingParams sampling(SamplingParams of_model) const;
  ModelOptions options_for(const server::LoadOrder& order) const;
  SessionOptions session_for(const server::LoadOrder& order, const ModelOptions& options) const;
};

}  // namespace bl
