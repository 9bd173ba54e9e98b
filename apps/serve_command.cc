// serve: the HTTP server.

#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "base/file.h"
#include "base/interrupt.h"
#include "base/log.h"
#include "command.h"
#include "results.h"
#include "serve_config.h"
#include "serve_options.h"
#include "serve_signals.h"
#include "server/api_server.h"
#include "usage_error.h"

namespace bl {
namespace {

constexpr std::chrono::milliseconds kInterruptCheck(
    100);                                  // interval at which to check for an interrupt
constexpr std::chrono::seconds kGrace(8);  // for answers that are being made at the end
constexpr std::chrono::seconds kEnd(14);   // the process is gone by then

void serve(ServeOptions& options) {
  install_server_signals();
  end_after_signal(kEnd);
  // A wrong option, or a port that is in use, is reported before the model is loaded.
  options.models.check();
  server::ApiServer server(options.server_options());
  // While the model is loaded, /health and all other routes say so.
  server.start();
  for (const std::string& address : server.addresses()) log_info("listening on {}", address);
  try {
    options.models.load_first(server.state());
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
      "(-m DIR | --models DIR) [--host ADDRESS --port N]",
      "Answer requests over HTTP",
      {{"A server for this machine", "bitloom serve -m DIR"},
       {"Ask it",
        "curl localhost:8080/v1/chat/completions -d "
        "'{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}'"},
       {"Several models, loaded when they are asked for", "bitloom serve --models FOLDER"},
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
