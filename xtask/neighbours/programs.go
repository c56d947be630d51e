//go:build tools

package neighbours

import _ "github.com/AlexxIT/go2rtc"
