#include "batch_line.h"

namespace bl {
namespace {

// Finds the custom_id of a line whose JSON is damaged somewhere. It reads up to the damage, without
// recursion, and builds nothing.
class IdFinder : public nlohmann::json_sax<Json> {
 public:
  const std::string& id() const { return id_; }

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(std::int64_t) override { return true; }
  bool number_unsigned(std::uint64_t) override { return true; }
  bool number_float(double, const std::string&) override { return true; }
  bool binary(Json::binary_t&) override { return false; }
  bool string(std::string& value) override {
    if (depth_ != 1 || !is_id_) return true;
    id_ = std::move(value);
    return false;
  }
  bool key(std::string& name) override {
    is_id_ = name == "custom_id";
    return true;
  }
  bool start_object(std::size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) override {
    return false;
  }

 private:
  bool open() {
    ++depth_;
    return true;
  }
  bool close() {
    --depth_;
    return true;
  }

  std::int64_t depth_ = 0;
  bool is_id_ = false;
  std::string id_;
};

std::string id_in_damaged(const std::string& text) {
  IdFinder finder;
  Json::sax_parse(text.begin(), text.end(), &finder);
  return finder.id();
}

std::string id_of(const OrderedJson& document) {
  const auto id = document.is_object() ? document.find("custom_id") : document.end();
  if (!document.is_object() || id == document.end() || !id->is_string()) return {};
  return id->get<std::string>();
}

void check(const OrderedJson& document, const std::string& id, std::string_view what) {
  if (id.empty()) {
    fail(ErrorCode::kInvalidFile, "{}: should be an object with a text as \"custom_id\"", what);
  }
  const OrderedJson url = document.value("url", OrderedJson());
  if (url != "/v1/chat/completions" && url != "/v1/completions") {
    fail(ErrorCode::kInvalidFile,
         "{}: url is {}, should be /v1/chat/completions or /v1/completions", what, json_shown(url));
  }
  if (document.value("method", OrderedJson("POST")) != "POST") {
    fail(ErrorCode::kInvalidFile, "{}: method should be POST", what);
  }
  const auto body = document.find("body");
  if (body == document.end() || !body->is_object()) {
    fail(ErrorCode::kInvalidFile, "{}: should have an object as \"body\"", what);
  }
}

}  // namespace

BatchLine BatchLine::read(const std::string& text, std::string_view what) {
  BatchLine line;
  try {
    line.document = parse_ordered_json(text, what);
  } catch (const Error& error) {
    line.custom_id = id_in_damaged(text);
    line.error = error;
    return line;
  }
  line.custom_id = id_of(line.document);
  try {
    check(line.document, line.custom_id, what);
  } catch (const Error& error) {
    line.error = error;
    line.document = {};
  }
  return line;
}

}  // namespace bl
