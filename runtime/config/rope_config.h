#ifndef RUNTIME_CONFIG_ROPE_CONFIG_H_
#define RUNTIME_CONFIG_ROPE_CONFIG_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "runtime/config/model_config.h"

namespace megatrain {

// Reads the rotary embedding from a config.json's object, in transformers 4's form (`rope_theta`,
// `rope_scaling` with `type` or `rope_type`) or 5's (`rope_parameters`, possibly one per kind of
// layer: then that of full attention). Keys that the kind does not use are added to
// `unsupported`. UNIMPLEMENTED for an unknown kind, INVALID_ARGUMENT for a bad value.
absl::StatusOr<RopeConfig> ParseRope(const nlohmann::json& config, double family_theta,
                                     std::vector<std::string>* unsupported);

}  // namespace megatrain

#endif  // RUNTIME_CONFIG_ROPE_CONFIG_H_
