#include "engine/caught_error.h"

#include <new>
#include <system_error>

namespace bl {
namespace {

// Made while there is memory; copies of an Error share its text.
const Error kNoMemory(ErrorCode::kOutOfMemory, "out of memory while the request was worked on");

Error with_words_of(ErrorCode code, const std::exception& exception) noexcept {
  try {
    return {code, exception.what()};
  } catch (const std::bad_alloc&) {
    return kNoMemory;
  }
}

}  // namespace

Error caught_error() noexcept {
  try {
    throw;
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return kNoMemory;
  } catch (const std::system_error& error) {
    return with_words_of(ErrorCode::kIo, error);
  } catch (const std::exception& error) {
    // The standard library throws others where a string or a table becomes too long.
    return with_words_of(ErrorCode::kLimit, error);
  }
}

}  // namespace bl
