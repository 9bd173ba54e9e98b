// serve: the HTTP server.

#include <chrono>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/interrupt.h"
#include "base/log.h"
#include "command.h"
#include "served_models.h"
#include "server/api_server.h"
#include "usage_error.h"

namespace bl {
namespace {

constexpr std::chrono::milliseconds kLook(100);  // interval at which to check for an interrupt
constexpr std::chrono::seconds kGrace(10);       // for answers that are being made at the end

struct ServeOptions {
  std::vector<std::string> hosts;
  std::int64_t port = 8080;
  std::vector<std::string> keys;
  std::vector<std::string> admin_keys;
  std::vector<std::string> allowed_hosts;
  std::vector<std::string> cors_origins;
  std::string tls_certificate;
  std::string tls_key;
  ServedModels models;

  template <class V>
  void visit(V&& v) {
    v.group("Server");
    v(hosts, {"--host", "ADDRESS",
              "address to listen on, or the path of a Unix socket that ends in .sock (repeatable)",
              "127.0.0.1"});
    v(port, {"--port", "N", "port to listen on; 0: any free one"});
    v(keys, {"--api-key", "KEY", "a key that requests must have (repeatable)", "none is needed"});
    v(admin_keys, {"--admin-key", "KEY",
                   "a key that may load and change what all users share (repeatable)", "none"});
    v(allowed_hosts, {"--allow-host", "NAME",
                      "a further name of this server in the Host of requests (repeatable)"});
    v(cors_origins, {"--cors-origin", "ORIGIN",
                     "web pages of this origin may use the server; '*': all may (repeatable)"});
    v(tls_certificate, {"--tls-cert", "FILE", "PEM file with the certificate; makes it HTTPS"});
    v(tls_key, {"--tls-key", "FILE", "PEM file with the certificate's key"});
    models.visit(v);
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
  result.models = options.models.registry();
  result.folders = options.models.folders();
  for (const std::string& host : result.http.hosts) {
    result.access.only_loopback &= is_loopback(host);
  }
  return result;
}

void serve(ServeOptions& options) {
  // A wrong option, or a port that is in use, is reported before the model is loaded.
  options.models.check();
  server::ApiServer server(server_options(options));
  options.models.load_first(server.state());
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
       "(-m DIR | --models DIR) [--host ADDRESS --port N]",
       "Answer requests over HTTP",
       {{"A server for this machine", "bitloom serve -m DIR"},
        {"Ask it",
         "curl localhost:8080/v1/chat/completions -d "
         "'{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}'"},
        {"Several models, loaded when they are asked for", "bitloom serve --models FOLDER"},
        {"For others in the network, with a key",
         "bitloom serve -m DIR --host 0.0.0.0 --api-key SECRET"}}},
      serve);
}

}  // namespace bl
