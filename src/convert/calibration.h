#pragma once
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace bl {

// The dataset of rows that the model itself has written.
constexpr const char* kGeneratedDataset = "generated";

// The token ids that statistics are taken from.
struct Calibration {
  std::vector<std::vector<std::int32_t>> rows;
  // One line per source for the report: its name and how many rows it gave.
  std::vector<std::string> sources;
  // What quantization_config calls them: kGeneratedDataset, or the names of the files.
  std::string dataset = {};
  std::int64_t tokens() const;
};

// A file of text and its share of the rows.
struct CalibrationFile {
  std::filesystem::path path;
  double weight = 1.0;
};

struct CalibrationArgs {
  const Tokenizer& tokenizer;
  std::vector<CalibrationFile> files;
  std::int64_t rows = 0;
  std::int64_t length = 0;  // tokens per row
  std::uint64_t seed = 0;   // chooses which rows of a file are taken
};

// Reads plain text (any extension), or JSON lines (.jsonl) with the key "text" or "messages". Each
// file is tokenized as one stream, without special tokens, and cut into rows; `weight` says how
// many of the rows a file gives, compared with the others. Throws kInvalidFile, kNotFound, and
// kInvalidArgument where a file is too short for its share.
Calibration read_calibration(const CalibrationArgs& args);

}  // namespace bl
