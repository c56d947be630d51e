// SPDX-License-Identifier: GPL-2.0-only
/*
 * Packet push: a UDP socket's receive buffer that empties itself into memory of
 * the program before it overflows, and recv() that takes from both in order.
 */
#include <linux/module.h>
#include <linux/net.h>
#include <linux/rcupdate.h>

#include "pkt_push.h"

/* UDP's operations of one address family, and ours made of them. */
struct push_family {
	const struct proto	*base_prot;
	const struct proto_ops	*base_ops;
	struct proto		prot;
	struct proto_ops	ops;
};

struct workqueue_struct *push_wq;
static struct push_family push_families[2];
static DEFINE_MUTEX(push_families_lock);
static bool push_was_used;

static void push_family_build(struct push_family *family, struct sock *sk)
{
	family->prot = *sk->sk_prot;
	family->prot.recvmsg = push_recvmsg;
	family->prot.ioctl = push_ioctl;
	family->prot.setsockopt = push_setsockopt;
	family->prot.close = push_close;
#ifdef CONFIG_BPF_SYSCALL
	/* No sockmap: it would take datagrams past the ring. */
	family->prot.psock_update_sk_prot = NULL;
#endif
	family->ops = *sk->sk_socket->ops;
	family->ops.poll = push_poll;

	family->base_prot = sk->sk_prot;
	family->base_ops = sk->sk_socket->ops;
}

/* NULL: somebody has put other operations onto this socket. */
static struct push_family *push_family_of(struct sock *sk)
{
	struct push_family *family = &push_families[sk->sk_family == AF_INET6];

	if (sk->sk_prot != READ_ONCE(sk->sk_prot_creator))
		return NULL;
	mutex_lock(&push_families_lock);
	if (!family->base_prot)
		push_family_build(family, sk);
	mutex_unlock(&push_families_lock);
	if (family->base_prot != sk->sk_prot ||
	    family->base_ops != sk->sk_socket->ops)
		return NULL;
	return family;
}

/* The socket's lock is held, and its file, so nobody closes it. */
int push_attach(struct sock *sk, struct push_sock *ps)
{
	struct push_family *family;

	if (sk->sk_type != SOCK_DGRAM || sk->sk_protocol != IPPROTO_UDP ||
	    (sk->sk_family != AF_INET && sk->sk_family != AF_INET6) ||
	    !sk->sk_socket)
		return -EOPNOTSUPP;
	/* A sockmap's, a tunnel's, or attached already. */
	if (rcu_access_pointer(sk->sk_user_data))
		return -EBUSY;
	family = push_family_of(sk);
	if (!family)
		return -EOPNOTSUPP;

	ps->sk = sk;
	ps->base_prot = family->base_prot;
	ps->base_ops = family->base_ops;
	refcount_inc(&ps->refs);
	__module_get(THIS_MODULE);
	WRITE_ONCE(push_was_used, true);
	write_lock_bh(&sk->sk_callback_lock);
	ps->base_data_ready = sk->sk_data_ready;
	rcu_assign_sk_user_data(sk, ps);
	WRITE_ONCE(sk->sk_data_ready, push_data_ready);
	write_unlock_bh(&sk->sk_callback_lock);
	/* After the pointer: calls that take no lock find it. */
	smp_store_release(&sk->sk_prot, &family->prot);
	smp_store_release(&sk->sk_socket->ops, &family->ops);
	return 0;
}

/* Makes the socket UDP's own again, for close(). Softirqs may still be here. */
void push_detach(struct sock *sk, struct push_sock *ps)
{
	write_lock_bh(&sk->sk_callback_lock);
	WRITE_ONCE(sk->sk_data_ready, ps->base_data_ready);
	rcu_assign_sk_user_data(sk, NULL);
	write_unlock_bh(&sk->sk_callback_lock);
	if (sk->sk_socket)
		WRITE_ONCE(sk->sk_socket->ops, ps->base_ops);
	WRITE_ONCE(sk->sk_prot, (struct proto *)ps->base_prot);
}

static int __init push_init(void)
{
	int err;

	push_wq = alloc_workqueue("pkt_push", WQ_UNBOUND, 0);
	if (!push_wq)
		return -ENOMEM;
	err = push_device_register();
	if (err)
		destroy_workqueue(push_wq);
	return err;
}

/* No socket is attached and no device is open: each holds the module. */
static void __exit push_exit(void)
{
	push_device_unregister();
	/* Memory of the last ones, and softirqs that still look at it. */
	rcu_barrier();
	destroy_workqueue(push_wq);
	/*
	 * The last socket gave the module back from within push_close(), whose
	 * task may have been preempted before it left our code.
	 */
	if (push_was_used)
		synchronize_rcu_tasks();
}

module_init(push_init);
module_exit(push_exit);

MODULE_DESCRIPTION("Packet push: a UDP receive buffer that empties itself into the program's memory");
MODULE_AUTHOR("The Freshwire authors");
MODULE_LICENSE("GPL");
MODULE_VERSION("1");
