// serve: the HTTP server.

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/interrupt.h"
#include "base/log.h"
#include "command.h"
#include "constraint_options.h"
#include "engine/engine.h"
#include "lora_options.h"
#include "model_options.h"
#include "preset_option.h"
#include "server/api_server.h"
#include "speculation_flags.h"
#include "usage_error.h"

namespace bl {
namespace {

constexpr std::chrono::milliseconds kLook(100);  // interval at which to check for an interrupt
constexpr std::chrono::seconds kGrace(10);       // for answers that are being made at the end

struct ServeOptions {
  std::vector<std::string> hosts;
  std::int64_t port = 8080;
  std::vector<std::string> aliases;
  std::vector<std::string> keys;
  std::vector<std::string> admin_keys;
  std::vector<std::string> allowed_hosts;
  std::vector<std::string> cors_origins;
  std::string tls_certificate;
  std::string tls_key;
  std::int64_t parallel = 4;
  ModelOptions model;
  SpeculationFlags speculation;
  LoraOptions lora;
  ConstraintOptions constraint;
  PresetOption preset;

  template <class V>
  void visit(V&& v) {
    v.group("Server");
    v(hosts, {"--host", "ADDRESS",
              "address to listen on, or the path of a Unix socket that ends in .sock (repeatable)",
              "127.0.0.1"});
    v(port, {"--port", "N", "port to listen on; 0: any free one"});
    v(aliases,
      {"--alias", "NAME",
       "the model's name in requests and answers; the first is shown, '*' answers to every "
       "name (repeatable)",
       "the folder's name"});
    v(keys, {"--api-key", "KEY", "a key that requests must have (repeatable)", "none is needed"});
    v(admin_keys, {"--admin-key", "KEY",
                   "a key that may load and change what all users share (repeatable)", "none"});
    v(allowed_hosts, {"--allow-host", "NAME",
                      "a further name of this server in the Host of requests (repeatable)"});
    v(cors_origins, {"--cors-origin", "ORIGIN",
                     "web pages of this origin may use the server; '*': all may (repeatable)"});
    v(tls_certificate, {"--tls-cert", "FILE", "PEM file with the certificate; makes it HTTPS"});
    v(tls_key, {"--tls-key", "FILE", "PEM file with the certificate's key"});
    v(parallel, {"--parallel", "N", "requests computed at once; others wait"});
    constraint.visit(v);
    speculation.visit(v);
    preset.visit(v);
    model.visit(v);
    lora.visit(v);
  }
};

bool is_loopback(const std::string& host) {
  return host.starts_with("127.") || host == "::1" || host == "localhost" ||
         host.ends_with(".sock");
}

server::ApiServer::Options server_options(const ServeOptions& options) {
  if (options.port < 0 || options.port > 65535) {
    fail_usage("--port: {} is not in 0 … 65535", options.port);
  }
  server::ApiServer::Options result;
  if (!options.hosts.empty()) result.http.hosts = options.hosts;
  result.http.port = static_cast<std::uint16_t>(options.port);
  result.http.tls_certificate = options.tls_certificate;
  result.http.tls_key = options.tls_key;
  result.access = {options.keys, options.admin_keys, options.allowed_hosts, options.cors_origins};
  for (const std::string& host : result.http.hosts) {
    result.access.only_loopback &= is_loopback(host);
  }
  return result;
}

std::string folder_name(std::filesystem::path path) {
  if (!path.has_filename()) path = path.parent_path();
  const std::string name = std::filesystem::absolute(path).filename().string();
  return path.extension() == ".gguf" ? path.stem().string() : name;
}

std::shared_ptr<server::ServedModel> load(ServeOptions& options) {
  SessionOptions session = options.model.session_options();
  options.lora.plan(session);
  session.sequences = options.parallel;
  EngineOptions engine_options;
  engine_options.speculation = options.speculation.load(options.model, session);
  server::ServedModel::Args args;
  args.engine = std::make_unique<Engine>(load_session(session), std::move(engine_options));
  args.names = options.aliases;
  if (args.names.empty()) args.names = {folder_name(options.model.model)};
  if (args.names.front() == "*") {
    args.names.insert(args.names.begin(), folder_name(options.model.model));
  }
  args.otherwise = {options.constraint.spec(), options.preset.load(),
                    options.lora.load(*args.engine)};
  args.sampling = args.engine->session().defaults().request;
  args.engine->warm_up();
  return std::make_shared<server::ServedModel>(std::move(args));
}

void serve(ServeOptions& options) {
  if (options.parallel < 1 || options.parallel > 1024) {
    fail_usage("--parallel: {} is not in 1 … 1024", options.parallel);
  }
  // A wrong option, or a port that is in use, is reported before the model is loaded.
  options.constraint.spec();
  options.speculation.check();
  options.preset.load();
  options.model.session_options();
  server::ApiServer server(server_options(options));
  server.state().set_model(load(options));
  server.start();
  for (const std::string& address : server.addresses()) log_info("listening on {}", address);
  while (!interrupted()) std::this_thread::sleep_for(kLook);
  log_info("stopping");
  server.stop(kGrace);
}

}  // namespace

Command serve_command() {
  return make_command<ServeOptions>(
      {"serve",
       "-m DIR [--host ADDRESS --port N]",
       "Answer requests over HTTP",
       {{"A server for this machine", "bitloom serve -m DIR"},
        {"Ask it",
         "curl localhost:8080/v1/chat/completions -d "
         "'{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}'"},
        {"For others in the network, with a key",
         "bitloom serve -m DIR --host 0.0.0.0 --api-key SECRET"}}},
      serve);
}

}  // namespace bl
