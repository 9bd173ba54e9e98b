#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "served_models.h"
#include "server/api_server.h"

namespace bl {

// The options of `bitloom serve`, from the command line, the environment and a file
// (serve_config.h).
struct ServeOptions {
  std::vector<std::string> hosts;
  std::int64_t port = 8080;
  std::vector<std::string> allowed_hosts;
  std::vector<std::string> cors_origins;
  std::string tls_certificate;
  std::string tls_key;
  std::string config;
  bool print_config = false;

  std::vector<std::string> keys;
  std::vector<std::string> key_files;
  std::vector<std::string> admin_keys;
  std::vector<std::string> admin_key_files;
  std::int64_t limit_requests = 0;
  std::int64_t limit_tokens = 0;
  std::int64_t limit_concurrent = 0;
  std::int64_t most_connections = 8192;
  ByteSize most_body{std::uint64_t{64} << 20};

  std::string access_log = "-";
  bool log_prompts = false;
  bool no_metrics = false;
  bool no_slots = false;
  bool metrics = false;
  bool slots = false;
  std::int64_t stuck_after = 60;

  ServedModels models;

  template <class V>
  void visit(V&& v) {
    visit_network(v);
    visit_keys(v);
    visit_state(v);
    models.visit(v);
  }

  // Checks everything that needs no model, and reads the files with keys. Throws UsageError, and
  // what reading a file throws.
  server::ApiServer::Options server_options() const;

 private:
  template <class V>
  void visit_network(V&& v) {
    v.group("Server");
    v(hosts,
      {"--host", "ADDRESS", "address to listen on, or the path of a Unix socket that ends in .sock",
       "127.0.0.1"});
    v(port, {"--port", "N", "port to listen on; 0: any free one"});
    v(tls_certificate, {"--tls-cert", "FILE", "PEM file with the certificate; makes it HTTPS"});
    v(tls_key, {"--tls-key", "FILE", "PEM file with the certificate's key"});
    v(allowed_hosts, {"--allow-host", "NAME", "a further name of this server in requests' Host"});
    v(cors_origins,
      {"--cors-origin", "ORIGIN",
       "web pages of this origin may use the server; localhost: those of this machine; '*': all"});
    v(config, {"--config", "FILE",
               "TOML file with these options, such as port = 8080; variables such as BITLOOM_PORT "
               "win over it, options given here win over both",
               "none"});
    v(print_config, {"--print-config", "", "print all options as such a file, without keys"});
  }
  template <class V>
  void visit_keys(V&& v) {
    v.group("Keys and limits");
    v(keys, {"--api-key", "KEY", "a key that requests must have", "none is needed"});
    v(key_files, {"--api-key-file", "FILE", "file with such keys, one a line", "none"});
    v(admin_keys, {"--admin-key", "KEY",
                   "a key that may also load models and change what all users share", "none"});
    v(admin_key_files, {"--admin-key-file", "FILE", "file with such keys, one a line", "none"});
    v(limit_requests, {"--limit-requests", "N", "requests a minute of one key; 0: no limit"});
    v(limit_tokens,
      {"--limit-tokens", "N", "tokens a minute of one key, of prompts and answers; 0: no limit"});
    v(limit_concurrent, {"--limit-concurrent", "N", "requests of one key at once; 0: no limit"});
    v(most_connections, {"--max-connections", "N", "open connections; further ones are closed"});
    v(most_body, {"--max-body", "SIZE", "size of a request's body"});
  }
  template <class V>
  void visit_state(V&& v) {
    v.group("Log and state");
    v(access_log, {"--access-log", "FILE",
                   "file that gets a line of JSON for each request; -: stderr; none: no log"});
    v(log_prompts, {"--log-prompts", "", "write the bodies of requests into that log, too"});
    v(metrics, {"--metrics", "", "answer GET /metrics (this is the default)"});
    v(no_metrics, {"--no-metrics", "", "do not answer GET /metrics"});
    v(slots, {"--slots", "", "answer GET /slots (this is the default)"});
    v(no_slots, {"--no-slots", "", "do not answer GET /slots"});
    v(stuck_after,
      {"--stuck-after", "SECONDS", "/health is bad when no step has ended for this long"});
  }
};

}  // namespace bl
