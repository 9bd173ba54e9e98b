// The server as a client on a raw socket meets it: framing, limits, time-outs, clients that leave.
#include "http/server.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "http/raw_client.h"

namespace bl::test {
namespace {

using namespace std::chrono_literals;
using http::Exchange;
using http::Request;
using http::Response;

// Answers "METHOD PATH BODY". Paths under /stream, /hold and /drop do what their names say.
class Echo {
 public:
  explicit Echo(http::Limits limits = {}) : server_(options(limits), handlers()) {
    server_.start();
  }
  ~Echo() {
    held_.clear();
    server_.stop();
  }
  std::uint16_t port() const { return server_.port(); }
  http::Server& server() { return server_; }
  int asked() const { return asked_; }

  std::shared_ptr<Exchange> wait_for_held() {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, 5s, [&] { return !held_.empty(); });
    return held_.empty() ? nullptr : held_.back();
  }

 private:
  static http::ServerOptions options(http::Limits limits) { return {.port = 0, .limits = limits}; }
  http::Handlers handlers() {
    return {.request = [this](std::shared_ptr<Exchange> exchange) { answer(std::move(exchange)); },
            .head = [](const Request& head) -> std::optional<Response> {
              if (head.path != "/secret") return std::nullopt;
              return Response{401, {}, "key"};
            },
            .fault =
                [](int status, std::string_view message, const Request&) {
                  return Response{status, {}, std::string(message)};
                }};
  }
  void answer(std::shared_ptr<Exchange> exchange) {
    ++asked_;
    const Request& request = exchange->request();
    if (request.path == "/drop") return;
    if (request.path == "/throw") throw std::runtime_error("a fault");
    if (request.path == "/hold") {
      const std::scoped_lock lock(mutex_);
      held_.push_back(std::move(exchange));
      changed_.notify_all();
      return;
    }
    if (request.path == "/stream") {
      exchange->begin({200, {{"Content-Type", "text/plain"}}, "one "});
      exchange->write("two ");
      exchange->write("");
      exchange->write("three");
      return exchange->end();
    }
    exchange->respond({200, {}, request.method + " " + request.path + " " + request.body});
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<Exchange>> held_;
  std::atomic<int> asked_{0};
  http::Server server_;
};

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

bool eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 500; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(10ms);
  }
  return false;
}

TEST(HttpServer, KeepsConnections) {
  Echo echo;
  RawClient client(echo.port());
  for (int i = 0; i < 3; ++i) {
    client.send("POST /a%20b HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello");
    const std::string answer = client.read_answer();
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK\r\n")) << answer;
    EXPECT_TRUE(answer.ends_with("POST /a b hello")) << answer;
    EXPECT_FALSE(has(answer, "Connection:")) << answer;
  }
  client.send("GET / HTTP/1.1\r\nHost: x\r\nConnection: Close\r\n\r\n");
  EXPECT_TRUE(has(client.read_answer(), "Connection: close"));
  client.read_all();
  EXPECT_TRUE(client.ended());
}

TEST(HttpServer, AnswersPipelinedRequestsInOrder) {
  Echo echo;
  RawClient client(echo.port());
  client.send(
      "GET /1 HTTP/1.1\r\nHost: x\r\n\r\nPOST /2 HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "
      "chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\nGET /stream HTTP/1.1\r\nHost: x\r\n\r\n"
      "HEAD /4 HTTP/1.1\r\nHost: x\r\n\r\nGET /5 HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(client.read_answer().ends_with("GET /1 "));
  EXPECT_TRUE(client.read_answer().ends_with("POST /2 abcde"));
  const std::string stream = client.read_answer();
  EXPECT_TRUE(has(stream, "4\r\none \r\n4\r\ntwo \r\n5\r\nthree\r\n0\r\n\r\n")) << stream;
  const std::string head = client.read_to("\r\n\r\n");
  EXPECT_TRUE(has(head, "Content-Length: 8\r\n")) << head;
  EXPECT_TRUE(client.read_answer().ends_with("GET /5 "));
}

TEST(HttpServer, ReadsChunksThatComeByteByByte) {
  Echo echo;
  for (const auto& [chunks, body] :
       {std::pair{"0\r\n\r\n", ""}, std::pair{"4\r\n0\r\n\n\r\n0\r\n\r\n", "0\r\n\n"},
        std::pair{"1\r\nx\r\n0\r\nA: b\r\n\r\n", "x"}}) {
    RawClient client(echo.port());
    client.send("POST /c HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
    for (const char byte : std::string_view(chunks)) {
      std::this_thread::sleep_for(3ms);
      client.send(std::string(1, byte));
    }
    EXPECT_TRUE(client.read_answer().ends_with(std::string("POST /c ") + body)) << body;
  }
}

TEST(HttpServer, SpeaksOldHttp) {
  Echo echo;
  RawClient plain(echo.port());
  plain.send("GET /stream HTTP/1.0\r\n\r\n");
  const std::string all = plain.read_all();
  EXPECT_TRUE(all.ends_with("\r\n\r\none two three")) << all;
  EXPECT_FALSE(has(all, "chunked"));
  RawClient kept(echo.port());
  for (int i = 0; i < 2; ++i) {
    kept.send("GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    EXPECT_TRUE(has(kept.read_answer(), "Connection: keep-alive"));
  }
}

TEST(HttpServer, RefusesWhatCouldBeReadInTwoWays) {
  Echo echo;
  const std::string post = "POST / HTTP/1.1\r\nHost: x\r\n";
  const std::pair<std::string, std::string> cases[] = {
      {post + "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "400"},
      {post + "Content-Length: 4\r\nContent-Length: 5\r\n\r\nabcde", "400"},
      {post + "Content-Length: -1\r\n\r\n", "400"},
      {post + "Content-Length: 1x\r\n\r\nab", "400"},
      {post + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", "501"},
      {post + "Transfer-Encoding: chunked\r\n\r\n1\nab\r\n0\r\n\r\n", "400"},
      {post + "Transfer-Encoding: chunked\r\n\r\n1;a=\"\n\"\r\nx\r\n0\r\n\r\n", "400"},
      {post + "Transfer-Encoding: chunked\r\n\r\n1;a=\x01\r\nx\r\n0\r\n\r\n", "400"},
      {post + "Transfer-Encoding: chunked\r\n\r\n1;" + std::string(300, 'a') + "\r\nx\r\n0\r\n\r\n",
       "400"},
      {post + "Transfer-Encoding: chunked\r\n\r\nzz\r\n\r\n", "400"},
      {post + "Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n\r\n", "400"},
      {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "400"},
      {"GET / HTTP/1.1\r\n\r\n", "400"},
      {"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", "400"},
      {"GET / HTTP/1.1\nHost: a\n\n", "400"},
      {"GET / HTTP/2.0\r\nHost: a\r\n\r\n", "505"},
      {"GET /% HTTP/1.1\r\nHost: a\r\n\r\n", "400"},
      {"GET /%00 HTTP/1.1\r\nHost: a\r\n\r\n", "400"},
      {"\x16\x03\x01\x02", "400"},
  };
  for (const auto& [bytes, status] : cases) {
    RawClient client(echo.port());
    client.send(bytes);
    client.finish_sending();
    const std::string answer = client.read_all();
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 " + status)) << bytes << "\n" << answer;
    EXPECT_TRUE(has(answer, "Connection: close"));
    // Nothing of it was taken for a request of its own.
    EXPECT_EQ(answer.find("Content-Length"), answer.rfind("Content-Length")) << answer;
  }
  EXPECT_EQ(echo.asked(), 0);
}

TEST(HttpServer, BoundsSizes) {
  Echo echo({.header_bytes = 1000, .body_bytes = 100});
  const auto answer_to = [&](const std::string& bytes) {
    RawClient client(echo.port());
    client.send(bytes);
    return client.read_all();
  };
  // The length alone decides: nothing of the body was sent.
  EXPECT_TRUE(answer_to("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 101\r\n\r\n")
                  .starts_with("HTTP/1.1 413"));
  EXPECT_TRUE(answer_to("POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n66\r\n" +
                        std::string(102, 'x'))
                  .starts_with("HTTP/1.1 413"));
  EXPECT_TRUE(answer_to("GET / HTTP/1.1\r\nHost: x\r\nA: " + std::string(1000, 'x') + "\r\n\r\n")
                  .starts_with("HTTP/1.1 431"));
  EXPECT_TRUE(answer_to("GET /" + std::string(2000, 'x')).starts_with("HTTP/1.1 431"));
  EXPECT_EQ(echo.asked(), 0);
}

TEST(HttpServer, RefusesByTheHeaderAndKeepsTheConnection) {
  Echo echo;
  RawClient client(echo.port());
  client.send("POST /secret HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc");
  EXPECT_TRUE(client.read_answer().starts_with("HTTP/1.1 401"));
  client.send("GET /secret HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(client.read_answer().starts_with("HTTP/1.1 401"));
  client.send("GET /free HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(client.read_answer().ends_with("GET /free "));
  client.send("POST /secret HTTP/1.1\r\nHost: x\r\nContent-Length: 9000000\r\n\r\nabc");
  EXPECT_TRUE(has(client.read_answer(), "Connection: close"));
  EXPECT_EQ(echo.asked(), 1);
}

TEST(HttpServer, AsksForABodyThatWaits) {
  Echo echo;
  RawClient client(echo.port());
  client.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(client.read_to("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send("ab");
  EXPECT_TRUE(client.read_answer().ends_with("POST / ab"));
}

TEST(HttpServer, NoticesAClientThatLeaves) {
  Echo echo;
  std::atomic<int> told{0};
  {
    RawClient client(echo.port());
    client.send("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
    const auto exchange = echo.wait_for_held();
    ASSERT_NE(exchange, nullptr);
    exchange->watch([&told, exchange = std::weak_ptr(exchange)] {
      if (exchange.lock()->gone()) ++told;
    });
  }
  EXPECT_TRUE(eventually([&] { return told == 1; }));
  EXPECT_TRUE(eventually([&] { return echo.server().connections() == 0; }));
  EXPECT_EQ(echo.server().answering(), 0u);
  // Answers to a client that has gone are dropped.
  echo.wait_for_held()->respond({200, {}, "late"});
}

TEST(HttpServer, AnswersWhatItsHandlerForgets) {
  Echo echo;
  RawClient client(echo.port());
  for (const char* path : {"/drop", "/throw", "/drop"}) {
    client.send(std::string("GET ") + path + " HTTP/1.1\r\nHost: x\r\n\r\n");
    EXPECT_TRUE(client.read_answer().starts_with("HTTP/1.1 500")) << path;
  }
}

TEST(HttpServer, EndsWhatIsTooSlow) {
  Echo echo({.header_time = 1s, .progress_time = 1s, .idle_time = 1s});
  RawClient idle(echo.port());
  RawClient header(echo.port());
  header.send("GET / HTT");
  RawClient body(echo.port());
  body.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nabc");
  EXPECT_EQ(idle.read_all(), "");
  EXPECT_TRUE(header.read_all().starts_with("HTTP/1.1 408"));
  EXPECT_TRUE(body.read_all().starts_with("HTTP/1.1 408"));
  EXPECT_TRUE(idle.ended() && header.ended() && body.ended());
}

// A reader that reads nothing makes unsent() grow, and is given up when it makes no progress.
TEST(HttpServer, TellsAProducerWhenItsReaderIsSlow) {
  Echo echo({.progress_time = 1s});
  RawClient client(echo.port());
  client.send("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
  const auto exchange = echo.wait_for_held();
  ASSERT_NE(exchange, nullptr);
  exchange->begin({});
  const std::string piece(1 << 20, 'x');
  for (int i = 0; i < 64; ++i) exchange->write(piece);
  EXPECT_GT(exchange->unsent(), std::size_t{1} << 20);
  EXPECT_TRUE(eventually([&] { return exchange->gone(); }));
}

TEST(HttpServer, ClosesBehindTheAnswersThatAreBeingMade) {
  Echo echo;
  RawClient idle(echo.port());
  idle.send("GET /1 HTTP/1.1\r\nHost: x\r\n\r\n");
  idle.read_answer();
  RawClient busy(echo.port());
  busy.send("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
  const auto exchange = echo.wait_for_held();
  ASSERT_NE(exchange, nullptr);
  echo.server().close_idle();
  EXPECT_EQ(idle.read_all(), "");
  EXPECT_TRUE(idle.ended());
  exchange->respond({200, {}, "at last"});
  const std::string answer = busy.read_all();
  EXPECT_TRUE(has(answer, "Connection: close")) << answer;
  EXPECT_TRUE(answer.ends_with("at last"));
}

TEST(HttpServer, StopsWithAnswersUnderWay) {
  std::shared_ptr<Exchange> kept;
  {
    Echo echo;
    RawClient client(echo.port());
    client.send("GET /hold HTTP/1.1\r\nHost: x\r\n\r\n");
    kept = echo.wait_for_held();
  }
  ASSERT_NE(kept, nullptr);
  kept->respond({});
}

TEST(HttpServer, ServesManyConnectionsAtOnce) {
  Echo echo;
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        RawClient client(echo.port());
        for (int k = 0; k < 5; ++k) {
          const std::string path = "/" + std::to_string(t * 1000 + i * 10 + k);
          client.send("GET " + path + " HTTP/1.1\r\nHost: x\r\n\r\n");
          right += client.read_answer().ends_with("GET " + path + " ") ? 1 : 0;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 400);
  EXPECT_TRUE(eventually([&] { return echo.server().connections() == 0; }));
}

}  // namespace
}  // namespace bl::test
