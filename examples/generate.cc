// Several prompts answered together, streamed as they come.
//
//   generate MODEL "first prompt" "second prompt" …

#include <cstdio>
#include <string>
#include <vector>

#include "base/error.h"
#include "engine/engine.h"

namespace {

void generate(const std::string& model, const std::vector<std::string>& prompts) {
  bl::SessionOptions options;
  options.model = model;
  options.sequences = static_cast<std::int64_t>(prompts.size());
  options.context = 2048;
  bl::Engine engine(bl::ModelSession::load(options));

  std::vector<bl::RequestHandle> handles;
  for (const std::string& prompt : prompts) {
    bl::Request request;
    request.prompt = engine.tokenizer().encode(prompt);
    request.sampling = engine.session().defaults().sampling;
    request.sampling.max_tokens = 64;
    handles.push_back(engine.submit(std::move(request)));
  }

  std::vector<std::string> texts = prompts;
  for (std::size_t i = 0; i < handles.size(); ++i) {
    // The others go on meanwhile; their events wait.
    while (const std::optional<bl::Event> event = handles[i].next()) {
      texts[i] += event->text;
      if (!event->finish) continue;
      if (*event->finish == bl::FinishReason::kError) bl::fail(event->code, "{}", event->error);
      std::printf("%s\n[%lld tokens, %.1f a second]\n\n", texts[i].c_str(),
                  static_cast<long long>(event->usage.generated_tokens),
                  event->usage.decode_rate());
    }
  }
}

}  // namespace

int main(int count, char** arguments) {
  if (count < 3) {
    std::fprintf(stderr, "usage: generate MODEL PROMPT...\n");
    return 2;
  }
  try {
    generate(arguments[1], std::vector<std::string>(arguments + 2, arguments + count));
  } catch (const bl::Error& error) {
    std::fprintf(stderr, "generate: %s\n", error.what());
    return 1;
  }
  return 0;
}
