// Any bytes as a Parquet file: an Error or texts.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/error.h"
#include "parquet/text_column.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  try {
    bl::parquet::read_text_column({reinterpret_cast<const std::byte*>(data), size}, "fuzz");
  } catch (const bl::Error&) {
  }
  return 0;
}
