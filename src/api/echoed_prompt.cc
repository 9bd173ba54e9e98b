#include "api/echoed_prompt.h"

#include "base/utf8.h"

namespace bl::openai {

EchoedPrompt EchoedPrompt::of(const CompletionRequest& request, std::size_t index,
                              const Logprobs& logprobs) {
  if (!request.echo) return {};
  EchoedPrompt echo{request.prompt_text(index, logprobs.names().tokenizer())};
  echo.characters = count_code_points(echo.text);
  return echo;
}

}  // namespace bl::openai
