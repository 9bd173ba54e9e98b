#pragma once
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace bl::parquet {

// Reads the numbers of Parquet's hybrid of runs and packed bits (parquet-format, Encodings.md, "Run
// Length Encoding / Bit-Packing Hybrid").
class RunDecoder {
 public:
  // `bits`: of each number, 0 … 32. `what` names the bytes in errors, and must outlive this object.
  RunDecoder(std::span<const std::byte> bytes, int bits, const std::string& what)
      : bytes_(bytes), bits_(bits), what_(what) {}

  // Throws kInvalidFile where the bytes end before the number.
  std::uint32_t next();

 private:
  void begin_run();
  std::uint32_t packed_number();
  [[noreturn]] void fail_damaged() const;

  std::span<const std::byte> bytes_;
  int bits_;
  const std::string& what_;
  std::size_t at_ = 0;
  std::uint64_t left_ = 0;  // numbers of the present run
  bool is_packed_ = false;
  std::uint32_t repeated_ = 0;    // the number of a run that is not packed
  std::uint64_t packed_bit_ = 0;  // of a packed run: where the next number begins, from byte 0 on
};

}  // namespace bl::parquet
