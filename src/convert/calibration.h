#pragma once
#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/json_fwd.h"
#include "text/tokenizer.h"

namespace bl {

// The dataset of rows that the model itself has written.
constexpr const char* kGeneratedDataset = "generated";

// Rows of token ids.
struct Calibration {
  std::vector<std::vector<std::int32_t>> rows;  // that statistics are taken from
  // Rows of the same kind that no weight is fitted to: what is said of the result is measured here.
  std::vector<std::vector<std::int32_t>> held_out = {};
  // One line per source for the report: its name and how many rows it gave.
  std::vector<std::string> sources;
  // What quantization_config calls them: kGeneratedDataset, or the names of the files.
  std::string dataset = {};
  std::int64_t tokens() const;  // of `rows`
  std::int64_t held_out_tokens() const;
};

// How many rows are held out beside `rows` others: one for every 32, and at least one.
std::int64_t held_out_beside(std::int64_t rows);

// A file of text and its share of the rows.
struct CalibrationFile {
  std::filesystem::path path;
  double weight = 1.0;
};

struct CalibrationArgs {
  const Tokenizer& tokenizer;
  // Writes the text of a conversation, given its messages, as the model's chat template does; null:
  // the contents of the messages are joined.
  std::function<std::string(const OrderedJson& messages)> render = {};
  std::vector<CalibrationFile> files;
  std::int64_t rows = 0;    // besides those that are held out
  std::int64_t length = 0;  // tokens per row
  std::uint64_t seed = 0;   // chooses which rows of a file are taken
};

// Reads plain text (any extension), JSON lines (.jsonl) with the key "text" or "messages", or the
// texts of a Parquet file (.parquet, parquet/text_column.h). Each file is tokenized as one stream
// and cut into rows; only what `render` writes may hold special tokens. `weight` says how many of
// the rows a file gives, compared with the others, of those to fit as of those to hold out. Throws
// kInvalidFile, kNotFound, kInvalidArgument where a file is too short for its share, and what
// read_text_column() and `render` throw, with the line.
Calibration read_calibration(const CalibrationArgs& args);

}  // namespace bl
