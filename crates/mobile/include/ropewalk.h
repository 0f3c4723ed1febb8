/*
 * A Ropewalk client for apps: bonds the networks of a device into one encrypted tunnel to a proxy.
 *
 * docs/PHONE.md says what an app has to do, call by call, and what the events and texts hold. Here stands what each call
 * takes and gives.
 *
 * Rules for all calls
 *
 * - They may be made from any thread, at the same time too. Those that wait for the tunnel's own thread may not be made
 *   in a callback, which runs on it; they then return ROPEWALK_WRONG_THREAD.
 * - A text is UTF-8. Its length is its bytes without a final zero, which it need not have.
 * - Memory that is handed over is read or written until the call returns, and never kept.
 * - `error` may be NULL. Otherwise it is written in every case: a code, and what failed and what to do.
 * - Nothing is thrown and no fault of the library ends the process: such a fault is ROPEWALK_INTERNAL.
 *
 * The app's part, which nobody can check
 *
 * - A pointer leads to memory of the size that is said, or is NULL.
 * - A tunnel is freed once, when no other call uses it, and is not used after that.
 * - The callbacks and their context live until the tunnel has been stopped, and the callbacks throw no exceptions. (In a
 *   callback into Java: clear a pending exception before it returns.)
 */
#ifndef ROPEWALK_H
#define ROPEWALK_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The version of this interface. It grows when a call or an event changes its meaning or goes. */
#define ROPEWALK_INTERFACE_VERSION 1

/* Bytes of a secret or public key (X25519), and of a preshared key. */
#define ROPEWALK_KEY_BYTES 32

/* Bytes of an error's text, its final zero included. */
#define ROPEWALK_ERROR_BYTES 512

/* How a call went. */
typedef enum ropewalk_code {
    /* It worked. */
    ROPEWALK_OK = 0,
    /* A pointer, length or number makes no sense, or a text is not UTF-8: a fault of the app. */
    ROPEWALK_ARGUMENT = 1,
    /* The invitation is none, is damaged, has expired, or is another proxy's. Show the error to the user. */
    ROPEWALK_INVITATION = 2,
    /* The config or the description of a network is not understood. */
    ROPEWALK_CONFIG = 3,
    /* The call comes too early or too late: before the start, or the start a second time. */
    ROPEWALK_ORDER = 4,
    /* The tunnel has ended. */
    ROPEWALK_STOPPED = 5,
    /* Too much waits already, or the tunnel did not answer in time: try again. */
    ROPEWALK_BUSY = 6,
    /* The buffer is too small; the length that was written says what it has to hold. */
    ROPEWALK_TOO_SMALL = 7,
    /* This call would wait for the thread that makes it. */
    ROPEWALK_WRONG_THREAD = 8,
    /* The descriptor is no TUN that can be used. */
    ROPEWALK_DESCRIPTOR = 9,
    /* The system refuses: no memory for a thread, no randomness. */
    ROPEWALK_SYSTEM = 10,
    /* A fault of the library. */
    ROPEWALK_INTERNAL = 11
} ropewalk_code;

/* What a call says of its failure. */
typedef struct ropewalk_error {
    ropewalk_code code;
    /* For people, in English, with a final zero; empty if nothing failed. */
    char message[ROPEWALK_ERROR_BYTES];
} ropewalk_error;

/* A tunnel. */
typedef struct ropewalk_tunnel ropewalk_tunnel;

/*
 * Binds `socket`, of UDP or TCP, to the network that the app calls `network`, before anything is sent on it: on Android
 * VpnService.protect and Network.bindSocket (android_setsocknetwork in C). Returns 0, or an error number of the system
 * (errno); the network is not used then, and tried again 5 s later. The socket is the library's: it is neither closed nor
 * kept. Runs on the tunnel's thread, and packets wait meanwhile.
 */
typedef int (*ropewalk_bind_socket)(void *context, int socket, uint64_t network);

/*
 * Is told what happens: `event` is one JSON object of `length` bytes with a final zero behind it, and is gone when the
 * call returns. Runs on the tunnel's thread, and packets wait meanwhile: hand over to another thread what takes time.
 */
typedef void (*ropewalk_on_event)(void *context, const char *event, size_t length);

/* What a tunnel is made of. */
typedef struct ropewalk_options {
    /* sizeof(ropewalk_options) */
    size_t size;
    /* This client's secret key, ROPEWALK_KEY_BYTES. It is copied; the app wipes its own. */
    const uint8_t *secret_key;
    size_t secret_key_length;
    /* A secret that the proxy shares besides the keys, ROPEWALK_KEY_BYTES, or NULL. */
    const uint8_t *preshared_key;
    size_t preshared_key_length;
    /* The config, JSON. NULL: the invitation says it. */
    const char *config;
    size_t config_length;
    /* The invitation, until the event `joined`. NULL: the proxy knows this client's key. */
    const char *invitation;
    size_t invitation_length;
    ropewalk_bind_socket bind_socket;
    ropewalk_on_event on_event;
    /* Handed to both. */
    void *context;
} ropewalk_options;

/* ROPEWALK_INTERFACE_VERSION of the library. An app that finds another one than in its header does not go on. */
uint32_t ropewalk_interface_version(void);

/* Makes a key pair from the system's randomness. The app keeps the secret key, and wipes its memory. */
ropewalk_code ropewalk_make_key(uint8_t *secret_key, size_t secret_key_length, uint8_t *public_key,
                                size_t public_key_length, ropewalk_error *error);

/* The public key of a secret key. */
ropewalk_code ropewalk_public_key(const uint8_t *secret_key, size_t secret_key_length, uint8_t *public_key,
                                  size_t public_key_length, ropewalk_error *error);

/*
 * Checks an invitation, the line that `ropewalk peer add` prints, and gives the config that it means, for the app to keep.
 * The config holds no secret; the line does until it was used. Writes at most `capacity` bytes, a final zero among them, to
 * `config`, and the length without it to `length`, in case of ROPEWALK_TOO_SMALL too.
 */
ropewalk_code ropewalk_read_invitation(const char *line, size_t line_length, char *config, size_t capacity,
                                       size_t *length, ropewalk_error *error);

/* Makes a tunnel and writes it to `tunnel`. Nothing runs yet. */
ropewalk_code ropewalk_tunnel_new(const ropewalk_options *options, ropewalk_tunnel **tunnel, ropewalk_error *error);

/* Starts the tunnel's thread: callbacks come from now on. A tunnel starts once. */
ropewalk_code ropewalk_tunnel_start(const ropewalk_tunnel *tunnel, ropewalk_error *error);

/*
 * Hands a TUN over, after the event `tun`. The library owns it from ROPEWALK_OK on and closes it when another is handed
 * over, when the tunnel is stopped, or for a `fd` of -1; in all other cases it stays the app's. It must give IP packets as
 * they are (IFF_TUN and IFF_NO_PI, no IFF_VNET_HDR), as that of VpnService does, and becomes non-blocking.
 */
ropewalk_code ropewalk_tunnel_set_tun(const ropewalk_tunnel *tunnel, int fd, ropewalk_error *error);

/* A network is there, or has other addresses or terms than before: JSON with its `id` and `name`. */
ropewalk_code ropewalk_tunnel_set_network(const ropewalk_tunnel *tunnel, const char *network, size_t network_length,
                                          ropewalk_error *error);

/* A network is not there any more. One that is not known is no error. */
ropewalk_code ropewalk_tunnel_remove_network(const ropewalk_tunnel *tunnel, uint64_t network, ropewalk_error *error);

/* Where a name of the event `resolve` leads: addresses with commas between them, such as "192.0.2.1,2001:db8::1". */
ropewalk_code ropewalk_tunnel_set_addresses(const ropewalk_tunnel *tunnel, const char *name, size_t name_length,
                                            const char *addresses, size_t addresses_length, ropewalk_error *error);

/* Stands still until ropewalk_tunnel_resume: no timer, nothing read or sent. To the proxy it is as if the phone slept. */
ropewalk_code ropewalk_tunnel_pause(const ropewalk_tunnel *tunnel, ropewalk_error *error);

/* Goes on, and asks all links at once. */
ropewalk_code ropewalk_tunnel_resume(const ropewalk_tunnel *tunnel, ropewalk_error *error);

/*
 * The status document, the JSON of `ropewalk status --json`: some 20 KiB. Written as by ropewalk_read_invitation. Waits for
 * the tunnel's thread, 2 s at most; not in a callback.
 */
ropewalk_code ropewalk_tunnel_status(const ropewalk_tunnel *tunnel, char *status, size_t capacity, size_t *length,
                                     ropewalk_error *error);

/*
 * Tells the proxy, ends the thread and waits for its end: a second at most, and as long as a callback takes. The event
 * `stopped` is the last one. Can be repeated; not in a callback.
 */
ropewalk_code ropewalk_tunnel_stop(const ropewalk_tunnel *tunnel, ropewalk_error *error);

/* Stops the tunnel and frees it, unless this is a callback of it. NULL is no error. */
ropewalk_code ropewalk_tunnel_free(ropewalk_tunnel *tunnel, ropewalk_error *error);

#ifdef __cplusplus
}
#endif

#endif
