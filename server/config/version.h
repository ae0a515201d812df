#ifndef SERVER_CONFIG_VERSION_H_
#define SERVER_CONFIG_VERSION_H_

namespace megatrain {

// Of the build, by semver.org.
inline constexpr char kVersion[] = "0.1.0";

}  // namespace megatrain

#endif  // SERVER_CONFIG_VERSION_H_
