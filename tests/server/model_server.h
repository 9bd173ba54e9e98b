#pragma once
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "http_answer.h"
#include "server/api_server.h"

namespace bl::test {

// Loads a tiny model for tests, with two sequences.
std::shared_ptr<server::ServedModel> load_tiny(const std::filesystem::path& folder,
                                               std::vector<std::string> names);

// Waits for what other threads do; false where it does not come.
bool eventually(const std::function<bool()>& condition);

// A server whose models are tiny and lie in a folder of the test. Each counts as one byte, so that
// a budget of two holds two of them.
class ModelServer : public testing::Test {
 protected:
  ModelServer();
  // Adds a model to the folder.
  void add_model(const std::string& name);
  void open(server::ApiServer::Options options = {});
  // With keys "user" and "admin".
  void open_with_keys(server::ApiServer::Options options = {});

  HttpAnswer ask(const std::string& request);
  HttpAnswer get(const std::string& path, const std::string& key = {});
  HttpAnswer post(const std::string& path, const std::string& body, const std::string& key = {});
  // A completion of two tokens.
  HttpAnswer complete(const std::string& model);
  // An answer may be read before its request has let go of the model; waits until all have.
  void await_unused();
  std::string completion_request(const std::string& model, const std::string& more = {}) const;
  std::string state_of(const std::string& model);
  server::ModelRegistry& registry() { return server_->state().registry(); }

  std::filesystem::path folder_;
  // Called on the registry's thread before each load; may throw.
  std::function<void(const server::LoadOrder&)> before_load_;
  std::atomic<int> loads_{0};
  std::optional<server::ApiServer> server_;
};

}  // namespace bl::test
