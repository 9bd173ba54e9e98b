#include "model_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "../engine/tiny_model.h"
#include "../http/raw_client.h"
#include "support/data.h"

namespace bl::test {
namespace {

std::string bearer(const std::string& key) {
  return key.empty() ? std::string() : fmt::format("Authorization: Bearer {}\r\n", key);
}

}  // namespace

std::shared_ptr<server::ServedModel> load_tiny(const std::filesystem::path& folder,
                                               std::vector<std::string> names) {
  SessionOptions session;
  session.model = folder;
  session.backend = "cpu";
  session.threads = 1;
  session.sequences = 2;
  server::ServedModel::Args args;
  args.engine = std::make_unique<Engine>(ModelSession::load(session));
  args.names = std::move(names);
  args.sampling = args.engine->session().defaults().request;
  return std::make_shared<server::ServedModel>(std::move(args));
}

bool eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 3000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

ModelServer::ModelServer() {
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  folder_ = scratch_dir(fmt::format("models-{}", test->name()).c_str());
}

void ModelServer::add_model(const std::string& name) {
  static const std::filesystem::path tiny = make_tiny_model("server-models");
  std::filesystem::create_directories((folder_ / name).parent_path());
  std::filesystem::remove_all(folder_ / name);
  std::filesystem::copy(tiny, folder_ / name, std::filesystem::copy_options::recursive);
}

void ModelServer::open(server::ApiServer::Options options) {
  options.http.port = 0;
  options.models.folder = folder_;
  options.models.functions.plan = [](const server::LoadOrder&) {
    return server::ModelMemory{1, 0};
  };
  options.models.functions.load = [this](const server::LoadOrder& order) {
    ++loads_;
    if (before_load_) before_load_(order);
    return load_tiny(order.path, order.names);
  };
  server_.emplace(std::move(options));
  server_->start();
}

void ModelServer::open_with_keys(server::ApiServer::Options options) {
  options.access.keys = {"user"};
  options.access.admin_keys = {"admin"};
  open(std::move(options));
}

HttpAnswer ModelServer::ask(const std::string& request) {
  RawClient client(server_->port());
  client.send(request);
  std::string text = client.read_answer();
  // Models may take longer than the client's patience on a busy machine.
  for (int i = 0; text.empty() && !client.ended() && i < 10; ++i) text = client.read_answer();
  return HttpAnswer(text);
}

HttpAnswer ModelServer::get(const std::string& path, const std::string& key) {
  return ask(fmt::format("GET {} HTTP/1.1\r\nHost: localhost\r\n{}\r\n", path, bearer(key)));
}

HttpAnswer ModelServer::post(const std::string& path, const std::string& body,
                             const std::string& key) {
  return ask(http_request("POST", path, body, bearer(key)));
}

std::string ModelServer::completion_request(const std::string& model,
                                            const std::string& more) const {
  const Json name = model;
  return http_request(
      "POST", "/v1/completions",
      fmt::format(R"({{"model":{},"prompt":"a","max_tokens":2{}}})", name.dump(), more));
}

HttpAnswer ModelServer::complete(const std::string& model) {
  return ask(completion_request(model));
}

void ModelServer::await_unused() {
  EXPECT_TRUE(eventually([&] {
    const auto leases = registry().loaded();
    return std::all_of(leases.begin(), leases.end(),
                       [](const auto& lease) { return lease.use_count() == 1; });
  }));
}

std::string ModelServer::state_of(const std::string& model) {
  for (const server::ModelInfo& info : registry().list()) {
    if (info.names.front() == model) return std::string(server::name_of(info.state));
  }
  return "unknown";
}

}  // namespace bl::test
