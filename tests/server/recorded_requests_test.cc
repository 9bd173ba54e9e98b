// Every request of real clients (requests/ of the shared material) against a whole server: the
// requests of a file go over one connection, and the answers are judged by what the clients read.

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "../http/raw_client.h"
#include "answer_judges.h"
#include "calling_model.h"
#include "http_answer.h"
#include "server/api_server.h"
#include "support/data.h"

namespace bl::test {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kTooLong = 100000;  // characters that no context holds

// A text that ends in "… (N characters of this)" stands for N characters of its words.
std::size_t lengthen(Json& value) {
  std::size_t longest = 0;
  if (value.is_structured()) {
    for (Json& part : value) longest = std::max(longest, lengthen(part));
    return longest;
  }
  if (!value.is_string()) return 0;
  std::string& text = value.get_ref<std::string&>();
  constexpr std::string_view kEnd = " characters of this)";
  if (!text.ends_with(kEnd)) return 0;
  const std::size_t number = text.rfind('(') + 1;
  const std::size_t length = std::stoul(text.substr(number));
  text.clear();
  while (text.size() < length) text += "word ";
  text.resize(length);
  return length;
}

std::string fields_of(const Json& request) {
  std::string fields;
  for (const auto& [name, value] : request.at("headers").items()) {
    std::string text = value;
    const std::size_t key = text.find("<key>");
    if (key != std::string::npos) text.replace(key, 5, "some-key");
    fields += name + ": " + text + "\r\n";
  }
  return fields;
}

int expected_status(const Json& body, std::size_t longest) {
  if (!body.is_object()) return 200;
  const std::string model = body.value("model", body.value("name", "smollm2"));
  if (model != "smollm2") return 404;
  return longest >= kTooLong ? 400 : 200;
}

class RecordedTraffic : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = shared_dir() / "requests";
    if (shared_dir().empty() || !fs::exists(folder_)) {
      GTEST_SKIP() << "no shared/requests (BITLOOM_DATA)";
    }
    server_.emplace(server::ApiServer::Options{.http = {.port = 0}, .access = {}});
    server_->state().set_model(make_terse_calling_model("recorded-traffic"));
    server_->start();
  }

  void play(const fs::path& path) {
    const Json file = read_json_file(path);
    auto client = std::make_unique<RawClient>(server_->port());
    for (const Json& request : file.at("requests")) {
      SCOPED_TRACE(fmt::format("{} {}", path.string(), request.at("path").get<std::string>()));
      const HttpAnswer answer = exchange(*client, request);
      ++played_;
      if (answer.closes) client = std::make_unique<RawClient>(server_->port());
    }
  }

  HttpAnswer exchange(RawClient& client, const Json& request) {
    const std::string path = request.at("path");
    std::string target = path;
    if (request.contains("query")) target += "?" + request["query"].get<std::string>();
    Json body = request.value("body", Json());
    const std::size_t longest = lengthen(body);
    client.send(http_request(request.at("method").get<std::string>(), target,
                             body.is_null() ? "" : body.dump(), fields_of(request)));
    HttpAnswer answer = read_whole_answer(client);
    EXPECT_NE(answer.status, 0) << "no answer";
    EXPECT_EQ(answer.status, expected_status(body, longest)) << answer.body.substr(0, 500);
    if (answer.status == 200) {
      judge_answer(path, body, answer);
    } else {
      judge_error(path, answer);
      if (longest >= kTooLong) judge_length_error(path, answer);
    }
    return answer;
  }

  static void judge_length_error(const std::string& path, const HttpAnswer& answer) {
    if (path.starts_with("/v1/messages")) {
      EXPECT_NE(answer.body.find("prompt is too long: "), std::string::npos) << answer.body;
      return;
    }
    const Json error = answer.json().at("error");
    EXPECT_EQ(error.at("code"), "context_length_exceeded");
    const std::string message = error.at("message");
    EXPECT_NE(message.find("This model's maximum context length is "), std::string::npos);
    EXPECT_NE(message.find("exceeds the available context size"), std::string::npos);
  }

  fs::path folder_;
  std::optional<server::ApiServer> server_;
  int played_ = 0;
};

TEST_F(RecordedTraffic, IsAnsweredAsTheClientsReadIt) {
  std::vector<fs::path> files;
  for (const auto& entry : fs::recursive_directory_iterator(folder_)) {
    if (entry.path().extension() == ".json") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  for (const fs::path& file : files) play(file);
  EXPECT_GT(played_, 100);
}

}  // namespace
}  // namespace bl::test
