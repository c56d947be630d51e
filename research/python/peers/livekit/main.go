// Publishes three live renditions to LiveKit's server, as one simulcast track.
//
// publisher URL TOKEN PORT:WIDTHxHEIGHT@KBIT... reads the RTP packets of an H.264 encoder from each loopback port, the
// smallest rendition first, and hands them on as they come. It says "published" on a line of its own.
package main

import (
	"fmt"
	"log"
	"net"
	"os"

	"github.com/livekit/protocol/livekit"
	lksdk "github.com/livekit/server-sdk-go/v2"
	"github.com/pion/rtp"
	"github.com/pion/webrtc/v4"
)

// Quality names of the simulcast layers, the smallest first.
var qualities = []livekit.VideoQuality{livekit.VideoQuality_LOW, livekit.VideoQuality_MEDIUM, livekit.VideoQuality_HIGH}

func main() {
	if len(os.Args) != 3+len(qualities) {
		log.Fatal("usage: publisher URL TOKEN PORT:WIDTHxHEIGHT@KBIT... (three, the smallest first)")
	}
	lost := make(chan struct{})
	callback := &lksdk.RoomCallback{OnDisconnected: func() { close(lost) }}
	room, err := lksdk.ConnectToRoomWithToken(os.Args[1], os.Args[2], callback, lksdk.WithAutoSubscribe(false))
	if err != nil {
		log.Fatalf("cannot join the room: %v", err)
	}
	var tracks []*lksdk.LocalTrack
	for at, rendition := range os.Args[3:] {
		tracks = append(tracks, open(rendition, qualities[at]))
	}
	options := &lksdk.TrackPublicationOptions{Name: "clock"}
	if _, err := room.LocalParticipant.PublishSimulcastTrack(tracks, options); err != nil {
		log.Fatalf("cannot publish: %v", err)
	}
	fmt.Println("published")
	<-lost
	log.Fatal("the server ended the session")
}

// open makes the track of a rendition, and hands on its packets once it is bound.
func open(rendition string, quality livekit.VideoQuality) *lksdk.LocalTrack {
	var port int
	var width, height, kbit uint32
	if _, err := fmt.Sscanf(rendition, "%d:%dx%d@%d", &port, &width, &height, &kbit); err != nil {
		log.Fatalf("%q is no PORT:WIDTHxHEIGHT@KBIT: %v", rendition, err)
	}
	socket, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
	if err != nil {
		log.Fatal(err)
	}
	layer := &livekit.VideoLayer{Quality: quality, Width: width, Height: height, Bitrate: kbit * 1000}
	codec := webrtc.RTPCodecCapability{MimeType: webrtc.MimeTypeH264, ClockRate: 90000}
	track, err := lksdk.NewLocalTrack(codec, lksdk.WithSimulcast("clock", layer))
	if err != nil {
		log.Fatal(err)
	}
	go forward(socket, track)
	return track
}

func forward(socket *net.UDPConn, track *lksdk.LocalTrack) {
	buffer := make([]byte, 2048)
	for {
		length, err := socket.Read(buffer)
		if err != nil {
			log.Fatal(err)
		}
		packet := &rtp.Packet{}
		// RTCP of the encoder comes to the next port. The track writes SSRC and payload type.
		if err := packet.Unmarshal(append([]byte(nil), buffer[:length]...)); err != nil {
			log.Fatalf("no RTP packet: %v", err)
		}
		if !track.IsBound() {
			continue
		}
		if err := track.WriteRTP(packet, nil); err != nil {
			log.Fatalf("cannot send: %v", err)
		}
	}
}
