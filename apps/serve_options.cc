#include "serve_options.h"

#include <algorithm>

#include "base/file.h"
#include "base/log.h"
#include "usage_error.h"

namespace bl {
namespace {

constexpr std::uint64_t kMostKeyFile = 1 << 20;
constexpr std::size_t kShortKey = 8;  // shorter ones are guessed soon

bool is_loopback(const std::string& host) {
  return host.starts_with("127.") || host == "::1" || host == "localhost" ||
         host.ends_with(".sock");
}

// The lines of a file, without blanks around them, empty ones and comments.
void read_keys(const std::string& file, std::vector<std::string>& keys) {
  const std::string text = read_file(file, kMostKeyFile);
  const std::size_t before = keys.size();
  std::string_view rest = text;
  while (!rest.empty()) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    constexpr std::string_view kBlank = " \t\r";
    line.remove_prefix(std::min(line.find_first_not_of(kBlank), line.size()));
    line = line.substr(0, line.find_last_not_of(kBlank) + 1);
    if (!line.empty() && line.front() != '#') keys.emplace_back(line);
  }
  if (keys.size() == before) {
    fail(ErrorCode::kInvalidFile, "{}: no key in it; write one a line", file);
  }
}

std::vector<std::string> all_keys(const char* flag, std::vector<std::string> keys,
                                  const std::vector<std::string>& files) {
  for (const std::string& key : keys) {
    if (key.empty()) fail_usage("{}: the key is empty", flag);
  }
  for (const std::string& file : files) read_keys(file, keys);
  for (const std::string& key : keys) {
    if (key.size() < kShortKey) {
      log_warning("{}: a key of {} characters is guessed soon", flag, key.size());
    }
  }
  return keys;
}

}  // namespace

server::ApiServer::Options ServeOptions::server_options() const {
  constexpr std::int64_t kMany = std::int64_t{1} << 40;
  check_range("--port", port, 0, 65535);
  check_range("--limit-requests", limit_requests, 0, kMany);
  check_range("--limit-tokens", limit_tokens, 0, kMany);
  check_range("--limit-concurrent", limit_concurrent, 0, kMany);
  check_range("--max-connections", most_connections, 1, 1 << 20);
  check_range("--stuck-after", stuck_after, 1, 86'400);
  if (metrics && no_metrics) fail_usage("--metrics and --no-metrics exclude each other");
  if (slots && no_slots) fail_usage("--slots and --no-slots exclude each other");
  server::ApiServer::Options result;
  if (!hosts.empty()) result.http.hosts = hosts;
  result.http.port = static_cast<std::uint16_t>(port);
  result.http.tls_certificate = tls_certificate;
  result.http.tls_key = tls_key;
  result.http.limits.connections = static_cast<std::size_t>(most_connections);
  result.http.limits.body_bytes = most_body.bytes;
  result.access = {all_keys("--api-key", keys, key_files),
                   all_keys("--admin-key", admin_keys, admin_key_files), allowed_hosts,
                   cors_origins};
  for (const std::string& host : result.http.hosts) {
    result.access.only_loopback &= is_loopback(host);
  }
  if (!result.access.only_loopback && result.access.keys.empty()) {
    log_warning("everybody who reaches this address may use the server; --api-key asks for a key");
  }
  result.limits = {limit_requests, limit_tokens, limit_concurrent};
  const bool is_quiet_stderr = access_log == "-" && is_quiet();
  if (access_log != "none" && !is_quiet_stderr) result.access_log = access_log;
  result.log_prompts = log_prompts;
  result.metrics = !no_metrics;
  result.slots = !no_slots;
  result.health.stuck_after = std::chrono::seconds(stuck_after);
  result.models = models.registry();
  result.folders = models.folders();
  return result;
}

}  // namespace bl
