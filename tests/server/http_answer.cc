#include "http_answer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "../http/raw_client.h"

namespace bl::test {
namespace {

std::string joined_chunks(std::string_view chunked) {
  std::string all;
  while (!chunked.empty()) {
    const std::size_t line = std::min(chunked.find("\r\n"), chunked.size());
    const std::size_t size =
        std::strtoul(std::string(chunked.substr(0, line)).c_str(), nullptr, 16);
    chunked.remove_prefix(std::min(line + 2, chunked.size()));
    if (size == 0) break;
    all += chunked.substr(0, size);
    chunked.remove_prefix(std::min(size + 2, chunked.size()));
  }
  return all;
}

// Takes the text up to `mark`, and the mark.
std::string_view take_to(std::string_view& text, std::string_view mark) {
  const std::size_t end = std::min(text.find(mark), text.size());
  const std::string_view taken = text.substr(0, end);
  text.remove_prefix(std::min(end + mark.size(), text.size()));
  return taken;
}

}  // namespace

HttpAnswer::HttpAnswer(const std::string& text) {
  std::string_view rest = text;
  head = take_to(rest, "\r\n\r\n");
  body = has("Transfer-Encoding: chunked") ? joined_chunks(rest) : std::string(rest);
  closes = text.empty() || has("Connection: close");
  if (head.size() > 12) status = std::atoi(head.c_str() + 9);
}

HttpAnswer read_whole_answer(RawClient& client) {
  std::string text = client.read_answer();
  for (int i = 0; text.empty() && !client.ended() && i < 10; ++i) text = client.read_answer();
  return HttpAnswer(text);
}

std::vector<SentEvent> sent_events(std::string_view body) {
  std::vector<SentEvent> events;
  while (!body.empty()) {
    std::string_view block = take_to(body, "\n\n");
    SentEvent event;
    while (!block.empty()) {
      const std::string_view line = take_to(block, "\n");
      if (line.starts_with("event: ")) event.name = line.substr(7);
      if (line.starts_with("data: ")) event.data = line.substr(6);
    }
    if (!event.data.empty()) events.push_back(std::move(event));  // others are comments
  }
  return events;
}

std::vector<Json> json_lines(std::string_view body) {
  std::vector<Json> lines;
  while (!body.empty()) lines.push_back(Json::parse(take_to(body, "\n")));
  return lines;
}

std::string http_request(std::string_view method, std::string_view target, std::string_view body,
                         std::string_view fields) {
  return fmt::format("{} {} HTTP/1.1\r\nHost: localhost\r\n{}Content-Length: {}\r\n\r\n{}", method,
                     target, fields, body.size(), body);
}

}  // namespace bl::test
