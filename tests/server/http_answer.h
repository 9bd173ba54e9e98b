#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace bl::test {

// An answer of HTTP/1.1, as RawClient::read_answer() returns it.
struct HttpAnswer {
  explicit HttpAnswer(const std::string& text);

  int status = 0;
  std::string head;
  std::string body;  // chunks joined
  bool closes = false;
  bool has(std::string_view field) const { return head.find(field) != std::string::npos; }
  Json json() const { return Json::parse(body); }
};

class RawClient;
// Reads an answer, which may take longer than the client's patience on a busy machine.
HttpAnswer read_whole_answer(RawClient& client);

// One of the server-sent events of a body.
struct SentEvent {
  std::string name;  // empty where it has none
  std::string data;
};
std::vector<SentEvent> sent_events(std::string_view body);
// The lines of a body of JSON lines.
std::vector<Json> json_lines(std::string_view body);

// A request as bytes. `fields`: "Name: value\r\n" for each.
std::string http_request(std::string_view method, std::string_view target, std::string_view body,
                         std::string_view fields = {});

}  // namespace bl::test
