// SPDX-License-Identifier: GPL-2.0-only
/*
 * /dev/pkt_push: an open device is one socket's ring. Its memory outlives the
 * socket, so that a program can take what came before close().
 */
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/net.h>
#include <linux/uaccess.h>

#include "pkt_push.h"

/* Of private_data, from NULL to the ring. */
static DEFINE_MUTEX(push_attach_lock);

static struct push_sock *push_of(struct file *file)
{
	/* Pairs with the release in push_dev_attach(). */
	return smp_load_acquire(&file->private_data);
}

static int push_attach_fd(int fd, struct push_sock *ps)
{
	struct socket *sock;
	int err;

	sock = sockfd_lookup(fd, &err);
	if (!sock)
		return err;
	lock_sock(sock->sk);
	err = push_attach(sock->sk, ps);
	release_sock(sock->sk);
	sockfd_put(sock);
	return err;
}

static long push_dev_attach(struct file *file, void __user *arg)
{
	struct pkt_push_attach attach;
	struct push_sock *ps;
	int err = 0;

	if (copy_from_user(&attach, arg, sizeof(attach)))
		return -EFAULT;
	ps = push_create(&attach);
	if (IS_ERR(ps))
		return PTR_ERR(ps);
	attach.records = ps->records;
	attach.total_bytes = ps->total_bytes;
	/* Before it is attached: that cannot be taken back. */
	if (copy_to_user(arg, &attach, sizeof(attach))) {
		push_put(ps);
		return -EFAULT;
	}
	mutex_lock(&push_attach_lock);
	if (file->private_data)
		err = -EEXIST;
	else
		err = push_attach_fd(attach.fd, ps);
	if (!err)
		/* Pairs with push_of(). */
		smp_store_release(&file->private_data, ps);
	mutex_unlock(&push_attach_lock);
	if (err)
		push_put(ps);
	return err;
}

static long push_dev_stats(struct push_sock *ps, void __user *arg)
{
	struct pkt_push_stats stats;

	spin_lock_bh(&ps->lock);
	if (ps->sk)
		push_update_threshold(ps, ps->sk);
	stats = ps->stats;
	spin_unlock_bh(&ps->lock);
	return copy_to_user(arg, &stats, sizeof(stats)) ? -EFAULT : 0;
}

static long push_dev_threshold(struct push_sock *ps, void __user *arg)
{
	u64 fixed;

	if (copy_from_user(&fixed, arg, sizeof(fixed)))
		return -EFAULT;
	if (fixed != PKT_PUSH_ADAPTIVE && fixed > INT_MAX)
		return -EINVAL;
	spin_lock_bh(&ps->lock);
	ps->fixed = fixed;
	spin_unlock_bh(&ps->lock);
	return 0;
}

static long push_dev_policy(struct push_sock *ps, void __user *arg)
{
	u32 policy;

	if (copy_from_user(&policy, arg, sizeof(policy)))
		return -EFAULT;
	if (policy > PKT_PUSH_OLDEST)
		return -EINVAL;
	spin_lock_bh(&ps->lock);
	ps->policy = policy;
	spin_unlock_bh(&ps->lock);
	return 0;
}

/* The socket cannot go meanwhile: close() clears ps->sk under the lock. */
static long push_dev_now(struct push_sock *ps)
{
	long count;

	spin_lock_bh(&ps->lock);
	count = ps->sk ? push_locked(ps, ps->sk) : -ENOTCONN;
	spin_unlock_bh(&ps->lock);
	return count;
}

static long push_dev_reset(struct push_sock *ps)
{
	spin_lock_bh(&ps->lock);
	push_reset(ps);
	spin_unlock_bh(&ps->lock);
	return 0;
}

static long push_dev_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct push_sock *ps = push_of(file);
	void __user *user = (void __user *)arg;

	if (cmd == PKT_PUSH_ATTACH)
		return push_dev_attach(file, user);
	if (!ps)
		return -ENXIO;
	switch (cmd) {
	case PKT_PUSH_STATS:
		return push_dev_stats(ps, user);
	case PKT_PUSH_THRESHOLD:
		return push_dev_threshold(ps, user);
	case PKT_PUSH_POLICY:
		return push_dev_policy(ps, user);
	case PKT_PUSH_RESET:
		return push_dev_reset(ps);
	case PKT_PUSH_NOW:
		return push_dev_now(ps);
	default:
		return -ENOTTY;
	}
}

static int push_dev_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct push_sock *ps = push_of(file);

	return ps ? push_map(ps, vma) : -ENXIO;
}

/* misc_open() leaves its own pointer here. */
static int push_dev_open(struct inode *inode, struct file *file)
{
	file->private_data = NULL;
	return 0;
}

static int push_dev_release(struct inode *inode, struct file *file)
{
	struct push_sock *ps = file->private_data;

	if (ps)
		push_put(ps);
	return 0;
}

static const struct file_operations push_dev_fops = {
	.owner		= THIS_MODULE,
	.open		= push_dev_open,
	.release	= push_dev_release,
	.unlocked_ioctl	= push_dev_ioctl,
	.compat_ioctl	= compat_ptr_ioctl,
	.mmap		= push_dev_mmap,
	.llseek		= noop_llseek,
};

/* For every user, as sockets are: who attaches has to have the socket. */
static struct miscdevice push_dev = {
	.minor	= MISC_DYNAMIC_MINOR,
	.name	= "pkt_push",
	.fops	= &push_dev_fops,
	.mode	= 0666,
};

int push_device_register(void)
{
	return misc_register(&push_dev);
}

void push_device_unregister(void)
{
	misc_deregister(&push_dev);
}
