// The web page: a chat for browsers. Its files are embedded in the program.

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/sip_hash.h"
#include "server/page_files.h"
#include "server/routes.h"

namespace bl::server {
namespace {

// The page runs only its own files and talks only to its own server, whatever a model or an
// imported conversation says.
constexpr const char* kContentPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const char* content_type_of(std::string_view name) {
  if (name.ends_with(".html")) return "text/html; charset=utf-8";
  if (name.ends_with(".css")) return "text/css; charset=utf-8";
  if (name.ends_with(".js")) return "text/javascript; charset=utf-8";
  if (name.ends_with(".svg")) return "image/svg+xml";
  return "application/octet-stream";
}

// Whether an item of a list such as Accept's has a weight of zero, which means "not this".
bool is_unwanted(std::string_view parameters) {
  const std::size_t at = parameters.find("q=");
  if (at == std::string_view::npos) return false;
  const std::string_view weight = parameters.substr(at + 2);
  return weight.find_first_not_of("0. \t") == std::string_view::npos;
}

// Whether Accept or a field like it names `wanted`. Wildcards do not count.
bool accepts(const http::Request& request, std::string_view field, std::string_view wanted) {
  const std::string* value = request.field(field);
  if (value == nullptr) return false;
  std::string_view rest = *value;
  while (!rest.empty()) {
    std::string_view item = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(item.size() + 1, rest.size()));
    item.remove_prefix(std::min(item.find_first_not_of(" \t"), item.size()));
    const std::string_view name = item.substr(0, item.find_first_of("; \t"));
    if (http::equal_without_case(name, wanted)) return !is_unwanted(item.substr(name.size()));
  }
  return false;
}

// A weak tag, since it stands for the plain and for the compressed form.
std::string tag_of(const EmbeddedFile& file) {
  SipHash hash;
  hash.update(file.bytes);
  return fmt::format("W/\"{}\"", hash.finish().hex());
}

// If-None-Match compares weakly: "W/" does not count.
bool has_tag(const http::Request& request, std::string_view tag) {
  const std::string* known = request.field("if-none-match");
  if (known == nullptr) return false;
  return *known == "*" || known->find(tag.substr(2)) != std::string::npos;
}

const EmbeddedFile* file_named(std::string_view name) {
  const auto files = page_files();
  const auto found = std::find_if(files.begin(), files.end(),
                                  [&](const EmbeddedFile& file) { return file.name == name; });
  return found == files.end() ? nullptr : &*found;
}

http::Response answer_with(const EmbeddedFile& file, const http::Request& request) {
  const std::string tag = tag_of(file);
  http::Response response{200,
                          {{"Content-Type", content_type_of(file.name)},
                           {"Content-Security-Policy", kContentPolicy},
                           {"X-Content-Type-Options", "nosniff"},
                           {"Referrer-Policy", "same-origin"},
                           {"Cross-Origin-Opener-Policy", "same-origin"},
                           // Browsers keep the file, and ask whether it has changed.
                           {"Cache-Control", "no-cache"},
                           {"Vary", "Accept, Accept-Encoding"},
                           {"ETag", tag}},
                          {}};
  if (has_tag(request, tag)) {
    response.status = 304;
  } else if (accepts(request, "accept-encoding", "gzip")) {
    response.fields.push_back({"Content-Encoding", "gzip"});
    response.body = file.gzip;
  } else {
    response.body = file.bytes;
  }
  return response;
}

// Browsers get the page. Ollama's programs ask for "/" to find out whether the server is there.
http::Response front_page(const http::Request& request) {
  if (!accepts(request, "accept", "text/html")) {
    return {200,
            {{"Content-Type", "text/plain; charset=utf-8"}, {"Vary", "Accept"}},
            "Ollama is running"};
  }
  const EmbeddedFile* page = file_named("index.html");
  BL_CHECK(page != nullptr);
  return answer_with(*page, request);
}

http::Response part_of_page(const Call& call) {
  const std::string& name = call.path_value("name");
  const EmbeddedFile* file = file_named(name);
  if (file == nullptr) {
    throw HttpError(404, "", fmt::format("the page has no file '{}'", name.substr(0, 200)));
  }
  return answer_with(*file, call.request());
}

}  // namespace

void add_page_routes(Router& router) {
  router.add(
      {.method = "GET",
       .pattern = "/",
       .access = Access::kOpen,
       .quick = true,
       .summary = "The web page; a line of text for programs",
       .handle = [](const Call& call) { call.exchange->respond(front_page(call.request())); }});
  router.add({.method = "GET",
              .pattern = "/ui/{name}",
              .access = Access::kOpen,
              .quick = true,
              .summary = "A file of the web page",
              .handle = [](const Call& call) { call.exchange->respond(part_of_page(call)); }});
}

}  // namespace bl::server
