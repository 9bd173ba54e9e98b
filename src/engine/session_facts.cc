#include "engine/session_facts.h"

#include "engine/model_session.h"

namespace bl {

SessionFacts facts_of(const ModelSession& session) {
  const ModelSpec& spec = session.model().spec();
  const MemoryPlan& plan = session.plan();
  SessionFacts facts;
  facts.architecture = spec.architecture;
  facts.context = session.context();
  facts.train_context = spec.max_positions;
  facts.vocab = spec.vocab;
  facts.hidden = spec.hidden;
  facts.layers = spec.layers;
  facts.sequences = session.sequences();
  facts.parameters = session.parameters();
  facts.weights = plan.weights;
  facts.memory = plan.needed();
  facts.host = plan.on_host + session.kv_host();
  facts.cache_type = name_of(session.cache_types());
  return facts;
}

}  // namespace bl
