// Bytes of a client through the real connection, parser, access check and router. The first byte
// says how the rest is cut into reads; no model is loaded, so that handlers end at the lookup of
// one. What is sent back must be whole answers.
#include <algorithm>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "base/check.h"
#include "base/error.h"
#include "http/connection.h"
#include "server/access.h"
#include "server/error_shape.h"
#include "server/routes.h"

namespace {

using namespace bl;
namespace asio = boost::asio;

// A socket whose client has sent `input`, cut into pieces, and then closed its end.
class MemoryTransport : public http::Transport {
 public:
  MemoryTransport(asio::io_context& io, std::string_view input, std::size_t piece,
                  std::string& output)
      : io_(io), input_(input), piece_(piece), output_(output) {}

  asio::any_io_executor executor() override { return io_.get_executor(); }
  void handshake(std::function<void(http::error_code)> done) override { done({}); }
  void read_some(asio::mutable_buffer to, Transferred done) override {
    const std::size_t count = std::min({piece_, input_.size(), to.size()});
    std::copy_n(input_.data(), count, static_cast<char*>(to.data()));
    input_.remove_prefix(count);
    const http::error_code code =
        count == 0 || closed_ ? http::error_code(asio::error::eof) : http::error_code();
    asio::post(io_, [done = std::move(done), code, count] { done(code, count); });
  }
  void write(asio::const_buffer from, Transferred done) override {
    output_.append(static_cast<const char*>(from.data()), from.size());
    asio::post(io_, [done = std::move(done), size = from.size()] { done({}, size); });
  }
  void finish_sending() override {}
  void close() override { closed_ = true; }

 private:
  asio::io_context& io_;
  std::string_view input_;
  std::size_t piece_;
  std::string& output_;
  bool closed_ = false;
};

// The server's routes, without a model.
struct Routes {
  Routes() {
    server::add_openai_routes(router, state);
    server::add_responses_routes(router, state);
    server::add_anthropic_routes(router, state);
    server::add_ollama_routes(router, state);
    server::add_ollama_model_routes(router, state);
    server::add_llama_routes(router, state);
    server::add_kobold_routes(router, state);
    server::add_embedding_routes(router, state);
    server::add_request_routes(router, state);
    server::add_model_routes(router, state);
    server::add_admin_routes(router, state);
    server::add_adapter_routes(router, state);
    server::add_page_routes(router);
  }
  server::ServerState state;
  server::Router router;
  server::AccessPolicy access{{.keys = {"key"}, .cors_origins = {"https://ui.example"}}};
};

void answer(Routes& routes, const std::shared_ptr<http::Exchange>& exchange) {
  const http::Request& request = exchange->request();
  auto found = routes.router.find(request.method, request.path);
  if (found.route == nullptr) return exchange->respond({404, {}, "none"});
  server::Call call{exchange, std::move(found.path_values)};
  try {
    found.route->handle(call);
  } catch (const Error& error) {
    exchange->respond(server::error_response(found.route->shape, error));
  }
}

http::Handlers handlers(Routes& routes) {
  return {.request = [&](std::shared_ptr<http::Exchange> exchange) { answer(routes, exchange); },
          .head = [&](const http::Request& head) -> std::optional<http::Response> {
            try {
              routes.access.check_browser(head);
              const auto found = routes.router.find(head.method, head.path);
              if (found.route != nullptr) routes.access.check(head, found.route->access);
              return std::nullopt;
            } catch (const Error& error) {
              return server::error_response(routes.router.shape_of(head.path), error);
            }
          },
          .fault =
              [&](int status, std::string_view message, const http::Request& head) {
                return server::error_response(routes.router.shape_of(head.path),
                                              server::HttpError(status, "", std::string(message)));
              }};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static Routes routes;
  if (size == 0) return 0;
  const std::size_t piece = data[0] == 0 ? 8192 : data[0];
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  std::string output;
  asio::io_context io;
  auto context = std::make_shared<http::ConnectionContext>();
  context->handlers = handlers(routes);
  context->limits = {.header_bytes = 4096, .body_bytes = 1 << 16};
  auto connection = std::make_shared<http::Connection>(
      context, std::make_unique<MemoryTransport>(io, input, piece, output), "fuzz");
  connection->start();
  connection.reset();
  io.poll();
  BL_CHECK(context->answering == 0);
  BL_CHECK(output.empty() || output.starts_with("HTTP/1.1 "));
  return 0;
}
