// serve: the HTTP server.

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "base/file.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "command.h"
#include "engine/engine.h"
#include "results.h"
#include "serve_config.h"
#include "serve_options.h"
#include "serve_signals.h"
#include "server/api_server.h"
#include "text/chat_template.h"
#include "usage_error.h"

namespace bl {
namespace {

constexpr std::chrono::milliseconds kInterruptCheck(
    100);                                  // interval at which to check for an interrupt
constexpr std::chrono::seconds kGrace(8);  // for answers that are being made at the end
constexpr std::chrono::seconds kEnd(14);   // the process is gone by then

std::string folder_name(std::filesystem::path path) {
  if (!path.has_filename()) path = path.parent_path();
  const std::string name = std::filesystem::absolute(path).filename().string();
  return path.extension() == ".gguf" ? path.stem().string() : name;
}

SessionOptions session_options(const ServeOptions& options) {
  SessionOptions session = options.model.session_options();
  options.lora.plan(session);
  session.sequences = options.parallel;
  if (!options.chat_template.empty()) {
    session.chat_template = std::make_shared<const ChatTemplate>(
        read_file(options.chat_template, 16 << 20), options.chat_template);
  }
  return session;
}

std::shared_ptr<server::ServedModel> load(ServeOptions& options) {
  SessionOptions session = session_options(options);
  EngineOptions engine_options;
  engine_options.speculation = options.speculation.load(options.model, session);
  server::ServedModel::Args args;
  args.engine = std::make_unique<Engine>(load_session(session), std::move(engine_options));
  args.names = options.aliases;
  if (args.names.empty()) args.names = {folder_name(options.model.model)};
  if (args.names.front() == "*") {
    args.names.insert(args.names.begin(), folder_name(options.model.model));
  }
  args.otherwise.constraint = options.constraint.spec();
  args.otherwise.preset = options.preset.load();
  args.otherwise.adapters = options.lora.load(*args.engine);
  args.otherwise.special_tokens_in_messages = options.special_tokens_in_messages;
  args.sampling = options.sampling(args.engine->session().defaults().request);
  args.engine->warm_up();
  return std::make_shared<server::ServedModel>(std::move(args));
}

void serve(ServeOptions& options) {
  install_server_signals();
  end_after_signal(kEnd);
  // A wrong option, or a port that is in use, is reported before the model is loaded.
  server::ApiServer::Options server_options = options.server_options();
  options.constraint.spec();
  options.speculation.check();
  options.preset.load();
  session_options(options);
  server::ApiServer server(std::move(server_options));
  // While the model is loaded, /health and all other routes say so.
  server.start();
  for (const std::string& address : server.addresses()) log_info("listening on {}", address);
  try {
    server.state().set_model(load(options));
    log_info("ready");
  } catch (const Error&) {
    if (!interrupted()) throw;  // a signal while it is loaded is no failure
  }
  while (!interrupted()) std::this_thread::sleep_for(kInterruptCheck);
  log_info("stopping");
  server.stop(kGrace);
}

const CommandText& text() {
  static const CommandText kText{
      "serve",
      "-m DIR [--host ADDRESS --port N]",
      "Answer requests over HTTP",
      {{"A server for this machine", "bitloom serve -m DIR"},
       {"Ask it",
        "curl localhost:8080/v1/chat/completions -d "
        "'{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}'"},
       {"For others in the network, with a key",
        "bitloom serve -m DIR --host 0.0.0.0 --api-key-file keys.txt"},
       {"With the options in a file", "bitloom serve --config bitloom.toml"}}};
  return kText;
}

void execute(std::span<const std::string> words) {
  ServeOptions options;
  OptionParser parser(text());
  options.visit(parser);
  if (!parser.parse(words)) return;
  const ServeConfig config(options.config, parser.keys());
  parser.fill([&](const std::string& key) { return config.find(key); });
  if (options.print_config) {
    ConfigWriter writer;
    options.visit(writer);
    write_result(writer.text());
    return;
  }
  serve(options);
}

}  // namespace

Command serve_command() {
  Command command{text().name, text().summary, execute, nullptr};
  command.help = [] {
    ServeOptions options;
    OptionParser parser(text());
    options.visit(parser);
    return parser.help();
  };
  return command;
}

}  // namespace bl
