#include "convert/calibration.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <numeric>
#include <random>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "parquet/text_column.h"

namespace bl {
namespace {

constexpr const char* kBetweenTexts = "\n\n";

// The tokens of a file, of its texts one after the other.
class TokenStream {
 public:
  explicit TokenStream(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

  // What a text spells is no special token. Texts in a row are tokenized together.
  void add_text(std::string_view text) { (waiting_ += text) += kBetweenTexts; }
  void add_rendered(std::string_view conversation) {
    encode_waiting();
    append(tokenizer_.encode(conversation, {.add_special = false}));
  }
  std::vector<std::int32_t> take() {
    encode_waiting();
    return std::move(ids_);
  }

 private:
  void encode_waiting() {
    append(tokenizer_.encode(waiting_, {.add_special = false, .parse_special = false}));
    waiting_.clear();
  }
  void append(const std::vector<std::int32_t>& ids) {
    ids_.insert(ids_.end(), ids.begin(), ids.end());
  }

  const Tokenizer& tokenizer_;
  std::string waiting_;
  std::vector<std::int32_t> ids_;
};

// The text of a message: a string, or the texts of its parts. Calls of tools have none.
std::string content_of(const OrderedJson& message, const std::string& where) {
  if (!message.is_object()) {
    fail(ErrorCode::kInvalidFile, "{}: a message should be an object", where);
  }
  const auto content = message.find("content");
  if (content == message.end() || content->is_null()) return {};
  if (content->is_string()) return content->get<std::string>();
  std::string all;
  for (const OrderedJson& part : *content) {
    const auto text = part.is_object() ? part.find("text") : part.end();
    if (text != part.end() && text->is_string()) all += text->get<std::string>();
  }
  return all;
}

std::string joined_contents(const OrderedJson& messages, const std::string& where) {
  std::string all;
  for (const OrderedJson& message : messages) {
    const std::string text = content_of(message, where);
    if (!text.empty()) (all += text) += kBetweenTexts;
  }
  return all;
}

std::string rendered(const CalibrationArgs& args, const OrderedJson& messages,
                     const std::string& where) {
  try {
    return args.render(messages);
  } catch (const Error& error) {
    fail(error.code(), "{}: {}", where, error.what());
  }
}

// Adds a JSON line: its "text", or its messages.
void add_line(const CalibrationArgs& args, const OrderedJson& line, const std::string& where,
              TokenStream& stream) {
  if (line.is_object()) {
    const auto text = line.find("text");
    if (text != line.end() && text->is_string()) return stream.add_text(text->get<std::string>());
    const auto messages = line.find("messages");
    if (messages != line.end() && messages->is_array()) {
      if (messages->empty() || !(*messages)[0].is_object()) {
        fail(ErrorCode::kInvalidFile, "{}: messages should be a list of objects", where);
      }
      if (!args.render) return stream.add_text(joined_contents(*messages, where));
      return stream.add_rendered(rendered(args, *messages, where));
    }
  }
  fail(ErrorCode::kInvalidFile, "{} should be an object with \"text\" or \"messages\"", where);
}

void add_lines(const CalibrationArgs& args, const std::filesystem::path& path,
               TokenStream& stream) {
  const std::string content = read_file(path);
  std::size_t begin = 0;
  for (int number = 1; begin < content.size(); ++number) {
    const std::size_t end = std::min(content.find('\n', begin), content.size());
    const std::string_view line(content.data() + begin, end - begin);
    begin = end + 1;
    if (line.find_first_not_of(" \t\r") == line.npos) continue;
    const std::string where = fmt::format("{} line {}", path.string(), number);
    add_line(args, parse_ordered_json(line, where), where, stream);
  }
}

std::vector<std::int32_t> tokens_of(const CalibrationArgs& args,
                                    const std::filesystem::path& path) {
  TokenStream stream(args.tokenizer);
  std::string kind = path.extension().string();
  for (char& c : kind) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  if (kind == ".jsonl") {
    add_lines(args, path, stream);
  } else if (kind == ".parquet") {
    for (const std::string& text : parquet::read_text_column(path)) stream.add_text(text);
  } else {
    stream.add_text(read_file(path));
  }
  return stream.take();
}

// How many of `rows` rows each file gives: by weight, largest remainders first.
std::vector<std::int64_t> shares(const std::vector<CalibrationFile>& files, std::int64_t rows) {
  double sum = 0.0;
  for (const CalibrationFile& file : files) sum += file.weight;
  std::vector<std::int64_t> counts;
  std::vector<std::size_t> order;
  std::vector<double> rests;
  for (const CalibrationFile& file : files) {
    const double exact = static_cast<double>(rows) * file.weight / sum;
    counts.push_back(static_cast<std::int64_t>(exact));
    rests.push_back(exact - std::floor(exact));
    order.push_back(order.size());
  }
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return rests[a] > rests[b]; });
  std::int64_t left = rows - std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  for (const std::size_t file : order) {
    if (left-- <= 0) break;
    ++counts[file];
  }
  return counts;
}

// Chooses `count` of [0, all) without repetition.
std::vector<std::int64_t> draw(std::int64_t all, std::int64_t count, std::mt19937_64& random) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(all));
  std::iota(numbers.begin(), numbers.end(), 0);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto left = static_cast<std::uint64_t>(all - i);
    std::swap(numbers[static_cast<std::size_t>(i)],
              numbers[static_cast<std::size_t>(i) + random() % left]);
  }
  numbers.resize(static_cast<std::size_t>(count));
  return numbers;
}

std::int64_t tokens_in(const std::vector<std::vector<std::int32_t>>& rows) {
  std::int64_t sum = 0;
  for (const auto& row : rows) sum += std::ssize(row);
  return sum;
}

}  // namespace

std::int64_t Calibration::tokens() const { return tokens_in(rows); }
std::int64_t Calibration::held_out_tokens() const { return tokens_in(held_out); }

std::int64_t held_out_beside(std::int64_t rows) { return std::max<std::int64_t>(1, rows / 32); }

Calibration read_calibration(const CalibrationArgs& args) {
  Calibration result;
  std::mt19937_64 random(args.seed);
  const std::vector<std::int64_t> counts = shares(args.files, args.rows);
  const std::vector<std::int64_t> held_out = shares(args.files, held_out_beside(args.rows));
  for (std::size_t i = 0; i < args.files.size(); ++i) {
    const std::filesystem::path& path = args.files[i].path;
    const std::vector<std::int32_t> ids = tokens_of(args, path);
    const std::int64_t whole = std::ssize(ids) / args.length;
    if (whole < counts[i] + held_out[i]) {
      fail(ErrorCode::kInvalidArgument,
           "{} has {} tokens, which make {} rows of {}; its share is {} rows and {} held out: give "
           "more text, a smaller weight, or fewer or shorter rows (-r, -l)",
           path.string(), ids.size(), whole, args.length, counts[i], held_out[i]);
    }
    std::int64_t left = held_out[i];
    for (const std::int64_t row : draw(whole, counts[i] + held_out[i], random)) {
      const auto begin = ids.begin() + row * args.length;
      (left-- > 0 ? result.held_out : result.rows).emplace_back(begin, begin + args.length);
    }
    result.sources.push_back(fmt::format("{}: {} rows of {} tokens, and {} held out",
                                         path.filename().string(), counts[i], args.length,
                                         held_out[i]));
    result.dataset += (i == 0 ? "" : ", ") + path.filename().string();
  }
  // Interleaved, so that the first rows, which measuring takes, are of all sources.
  std::shuffle(result.rows.begin(), result.rows.end(), random);
  return result;
}

}  // namespace bl
