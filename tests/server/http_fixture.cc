#include "http_fixture.h"

#include <fmt/format.h>

#include <cstdlib>
#include <thread>

#include "../engine/tiny_model.h"

namespace bl::test {
namespace {

using namespace std::chrono_literals;

}  // namespace

std::string SocketAnswer::field(const std::string& name) const {
  const std::string low = http::lower_case(head);
  const std::string mark = "\r\n" + http::lower_case(name) + ": ";
  const std::size_t at = low.find(mark);
  if (at == std::string::npos) return {};
  const std::size_t begin = at + mark.size();
  return head.substr(begin, head.find("\r\n", begin) - begin);
}

std::vector<Json> SocketAnswer::data() const {
  std::vector<Json> all;
  for (const SentEvent& event : sent_events(body)) {
    if (event.data != "[DONE]") all.push_back(Json::parse(event.data));
  }
  return all;
}

std::string post_text(const std::string& path, const std::string& body, const std::string& fields) {
  return fmt::format("POST {} HTTP/1.1\r\nHost: localhost\r\n{}Content-Length: {}\r\n\r\n{}", path,
                     fields, body.size(), body);
}

std::string get_text(const std::string& path, const std::string& fields) {
  return fmt::format("GET {} HTTP/1.1\r\nHost: localhost\r\n{}\r\n", path, fields);
}

bool becomes_true(const std::function<bool()>& condition) {
  for (int i = 0; i < 2000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(5ms);
  }
  return false;
}

void ServerFixture::open_empty(server::ApiServer::Options options) {
  options.http.port = 0;
  server_.emplace(std::move(options));
  server_->start();
}

void ServerFixture::open(server::ApiServer::Options options, EngineOptions engine) {
  open_empty(std::move(options));
  set_model(std::move(engine));
}

void ServerFixture::set_model(EngineOptions engine) {
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  SessionOptions session;
  session.model =
      make_tiny_model(fmt::format("{}-{}", test->test_suite_name(), test->name()).c_str());
  session.backend = "cpu";
  session.threads = 1;
  session.sequences = sequences_;
  server::ServedModel::Args args;
  args.engine = std::make_unique<Engine>(ModelSession::load(session), std::move(engine));
  args.names = {"Tiny"};
  args.sampling = args.engine->session().defaults().request;
  model_ = std::make_shared<server::ServedModel>(std::move(args));
  server_->state().set_model(model_);
}

SocketAnswer ServerFixture::ask(const std::string& request) {
  RawClient client(port());
  client.send(request);
  return SocketAnswer(client.read_answer());
}

RequestHandle run_beside(Engine& engine, std::function<void()> on_token) {
  Request request = greedy_request({256, 65}, 100'000);
  request.unread_tokens = std::int64_t{1} << 20;
  request.after_sampling = [on_token = std::move(on_token)](const SampledToken& token) {
    on_token();
    return token.id;
  };
  return engine.submit(std::move(request));
}

}  // namespace bl::test
